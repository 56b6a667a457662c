"""Builds the application from its parts, for the process and for tests."""

import random
from datetime import timedelta

from sqlalchemy.ext.asyncio import AsyncEngine
from starlette.applications import Starlette

from chassis.telemetry.instruments import Telemetry
from employee_api.activities import ActivityHandlers, ActivityRepository
from employee_api.auth.api_tokens import ApiTokenRepository
from employee_api.auth.authorization import SessionAuthorizer
from employee_api.auth.devices import DeviceRepository
from employee_api.auth.handlers import LoginHandlers, SessionHandlers
from employee_api.auth.login_limiter import LoginLimiter
from employee_api.auth.logins import LoginService
from employee_api.auth.sessions import SessionRepository
from employee_api.auth.sign_ins import SignInRepository
from employee_api.breached_passwords import BreachedPasswords
from employee_api.clock import Clock, utc_now
from employee_api.exports.handlers import ExportHandlers
from employee_api.exports.streaming import CsvExporter
from employee_api.failure_counts import FailureCounts
from employee_api.http.application import create_application
from employee_api.http.cross_site import CrossSitePolicy
from employee_api.http.idempotency import StoredResponses
from employee_api.operations import operations
from employee_api.settings import AuthMode, EmployeeApiSettings
from employee_api.tasks.comments import CommentRepository
from employee_api.tasks.handlers import CommentHandlers, TaskHandlers
from employee_api.tasks.repository import TaskRepository
from employee_api.users.accounts import AccountRepository
from employee_api.users.handlers import AccountHandlers, UserHandlers
from employee_api.users.links import InvitationRepository
from employee_api.users.password_changes import PasswordChangeRepository
from employee_api.users.passwords import PasswordHasher
from employee_api.users.registration import NewUserPreparer, Registration
from employee_api.users.repository import UserRepository


def build(
    settings: EmployeeApiSettings,
    engine: AsyncEngine,
    password_hasher: PasswordHasher,
    telemetry: Telemetry,
    clock: Clock = utc_now,
) -> Starlette:
    """Build the application; the caller closes the engine and the hasher."""
    users, accounts = UserRepository(engine, clock, random.SystemRandom()), AccountRepository(engine, clock)
    idle, absolute = (timedelta(seconds=s) for s in (settings.session_idle_seconds, settings.session_absolute_seconds))
    sessions, tokens = SessionRepository(engine, clock, idle, absolute), ApiTokenRepository(engine, clock)
    devices, sign_ins = DeviceRepository(engine, clock), SignInRepository(engine, clock)
    authorizer = SessionAuthorizer(settings.auth_mode, sessions, tokens, telemetry)
    new_users = new_user_preparer(settings, password_hasher)
    counts = FailureCounts(engine, clock, timedelta(seconds=settings.failed_logins_window_seconds))
    limiter = LoginLimiter(counts, clock, settings.failed_logins_per_email, settings.failed_logins_per_address)
    logins = LoginService(engine, users, password_hasher, sessions, devices, sign_ins, authorizer, limiter)
    changes = PasswordChangeRepository(engine, clock, authorizer.enforced)
    registration = Registration(
        engine, clock, users, authorizer, settings.registration, counts, settings.registrations_per_address
    )
    invitations = InvitationRepository(engine, clock)
    exporter = CsvExporter(engine, telemetry.tracer, defuse_formulas=settings.csv_defuse_formulas)
    table = operations(
        logins=LoginHandlers(settings.auth_mode, logins, sessions, sign_ins, users, changes, new_users),
        sessions=SessionHandlers(sessions, tokens, accounts),
        users=UserHandlers(users, new_users, registration, invitations, authorizer.enforced),
        accounts=AccountHandlers(accounts),
        tasks=TaskHandlers(TaskRepository(engine, clock)),
        comments=CommentHandlers(CommentRepository(engine, clock), authorizer),
        activities=ActivityHandlers(ActivityRepository(engine)),
        exports=ExportHandlers(exporter),
    )
    return create_application(
        table,
        authorizer,
        _cross_site_policy(settings),
        StoredResponses(engine, clock),
        reports_database_away=settings.reports_database_away,
    )


def _cross_site_policy(settings: EmployeeApiSettings) -> CrossSitePolicy:
    return CrossSitePolicy(
        settings.allowed_hosts,
        settings.allowed_origins,
        refused_when_off=settings.auth_mode is AuthMode.OFF and not settings.allow_cross_site,
    )


def new_user_preparer(settings: EmployeeApiSettings, password_hasher: PasswordHasher) -> NewUserPreparer:
    """Return what prepares new users by the password policy of the settings."""
    file = settings.breached_passwords_file
    return NewUserPreparer(password_hasher, settings.min_password_length, BreachedPasswords(file) if file else None)
