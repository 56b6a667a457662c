"""Builds the application from its parts, for the process and for tests."""

import random
from dataclasses import dataclass
from datetime import timedelta

from sqlalchemy.ext.asyncio import AsyncEngine
from starlette.applications import Starlette

from chassis.telemetry.instruments import Telemetry
from employee_api.activities.endpoints import ActivityEndpoints
from employee_api.activities.repository import ActivityRepository
from employee_api.auth.api_tokens import ApiTokenRepository
from employee_api.auth.authorization import SessionAuthorizer
from employee_api.auth.devices import DeviceRepository
from employee_api.auth.endpoints import AuthEndpoints
from employee_api.auth.login_limiter import LoginLimiter
from employee_api.auth.logins import LoginService
from employee_api.auth.password_confirmation import PasswordConfirmation
from employee_api.auth.password_endpoints import PasswordEndpoints
from employee_api.auth.session_endpoints import SessionEndpoints
from employee_api.auth.sessions import SessionRepository
from employee_api.auth.sign_ins import SignInRepository
from employee_api.auth.token_endpoints import TokenEndpoints
from employee_api.breached_passwords import BreachedPasswords
from employee_api.clock import Clock, utc_now
from employee_api.exports.endpoints import ExportEndpoints
from employee_api.exports.streaming import CsvExporter
from employee_api.failure_counts import FailureCounts
from employee_api.health import PROBES
from employee_api.http.application import create_application
from employee_api.http.cross_site import CrossSitePolicy
from employee_api.http.idempotency import StoredResponses
from employee_api.http.operations import Operation
from employee_api.settings import AuthMode, EmployeeApiSettings
from employee_api.tasks.comment_endpoints import CommentEndpoints
from employee_api.tasks.comments import CommentRepository
from employee_api.tasks.endpoints import TaskEndpoints
from employee_api.tasks.repository import TaskRepository
from employee_api.users.account_endpoints import AccountEndpoints
from employee_api.users.accounts import AccountRepository
from employee_api.users.endpoints import UserEndpoints
from employee_api.users.invitation_endpoints import InvitationEndpoints
from employee_api.users.invitations import InvitationRepository
from employee_api.users.new_users import NewUserPreparer
from employee_api.users.password_changes import PasswordChangeRepository
from employee_api.users.password_policy import PasswordPolicy
from employee_api.users.passwords import PasswordHasher
from employee_api.users.registration import Registration
from employee_api.users.registration_limiter import RegistrationLimiter
from employee_api.users.repository import UserRepository


@dataclass(frozen=True)
class _Shared:
    """What operations of several features use."""

    settings: EmployeeApiSettings
    engine: AsyncEngine
    clock: Clock
    password_hasher: PasswordHasher
    users: UserRepository
    new_users: NewUserPreparer
    sessions: SessionRepository
    authorizer: SessionAuthorizer
    counts: FailureCounts


def build(
    settings: EmployeeApiSettings,
    engine: AsyncEngine,
    password_hasher: PasswordHasher,
    telemetry: Telemetry,
    clock: Clock = utc_now,
) -> Starlette:
    sessions = _session_repository(settings, engine, clock)
    api_tokens, accounts = ApiTokenRepository(engine, clock), AccountRepository(engine, clock)
    authorizer = SessionAuthorizer(settings.auth_mode, sessions, api_tokens, telemetry)
    shared = _Shared(
        settings,
        engine,
        clock,
        password_hasher,
        users=UserRepository(engine, clock, random.SystemRandom()),
        new_users=NewUserPreparer(password_hasher, password_policy(settings)),
        sessions=sessions,
        authorizer=authorizer,
        counts=FailureCounts(engine, clock, timedelta(seconds=settings.failed_logins_window_seconds)),
    )
    exporter = CsvExporter(engine, telemetry.tracer, defuse_formulas=settings.csv_defuse_formulas)
    operations = [
        *_login_operations(shared),
        *_registration_operations(shared),
        *AccountEndpoints(accounts).operations(),
        *SessionEndpoints(sessions, accounts).operations(),
        *TokenEndpoints(api_tokens, accounts).operations(),
        *TaskEndpoints(TaskRepository(engine, clock)).operations(),
        *CommentEndpoints(CommentRepository(engine, clock), authorizer).operations(),
        *ActivityEndpoints(ActivityRepository(engine)).operations(),
        *ExportEndpoints(exporter).operations(),
    ]
    return create_application(
        operations,
        authorizer,
        _cross_site_policy(settings),
        StoredResponses(engine, clock),
        described=PROBES,
        reports_database_away=settings.reports_database_away,
    )


def _session_repository(settings: EmployeeApiSettings, engine: AsyncEngine, clock: Clock) -> SessionRepository:
    return SessionRepository(
        engine,
        clock,
        idle=timedelta(seconds=settings.session_idle_seconds),
        absolute=timedelta(seconds=settings.session_absolute_seconds),
    )


def _login_operations(shared: _Shared) -> list[Operation]:
    """Return the operations that verify, change or reset a password."""
    settings, engine, clock, authorizer = shared.settings, shared.engine, shared.clock, shared.authorizer
    sign_ins, devices = SignInRepository(engine, clock), DeviceRepository(engine, clock)
    limiter = LoginLimiter(
        shared.counts,
        clock,
        per_email=settings.failed_logins_per_email,
        per_address=settings.failed_logins_per_address,
    )
    logins = LoginService(
        engine=engine,
        users=shared.users,
        password_hasher=shared.password_hasher,
        sessions=shared.sessions,
        devices=devices,
        sign_ins=sign_ins,
        authorizer=authorizer,
        limiter=limiter,
    )
    confirmation = PasswordConfirmation(
        password_hasher=shared.password_hasher,
        devices=devices,
        sign_ins=sign_ins,
        authorizer=authorizer,
        limiter=limiter,
    )
    changes = PasswordChangeRepository(engine, clock, enforced=authorizer.enforced)
    return [
        *AuthEndpoints(logins, shared.sessions, sign_ins, settings.auth_mode).operations(),
        *PasswordEndpoints(shared.users, changes, confirmation, shared.new_users).operations(),
    ]


def _registration_operations(shared: _Shared) -> list[Operation]:
    """Return the operations that register, add, list and delete users, and those on invitations."""
    settings, engine, clock, authorizer = shared.settings, shared.engine, shared.clock, shared.authorizer
    registration = Registration(engine, clock, shared.users, authorizer, settings.registration)
    limiter = RegistrationLimiter(shared.counts, clock, authorizer, per_address=settings.registrations_per_address)
    users = UserEndpoints(
        shared.users,
        shared.new_users,
        registration,
        None if settings.auth_mode is AuthMode.OFF else limiter,
        enforced=authorizer.enforced,
    )
    invitations = InvitationEndpoints(InvitationRepository(engine, clock), registration)
    return [*users.operations(), *invitations.operations()]


def _cross_site_policy(settings: EmployeeApiSettings) -> CrossSitePolicy:
    return CrossSitePolicy(
        settings.allowed_hosts,
        settings.allowed_origins,
        refused_when_off=settings.auth_mode is AuthMode.OFF and not settings.allow_cross_site,
    )


def password_policy(settings: EmployeeApiSettings) -> PasswordPolicy:
    file = settings.breached_passwords_file
    return PasswordPolicy(settings.min_password_length, BreachedPasswords(file) if file else None)
