from datetime import timedelta
from functools import partial

from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncEngine
from starlette.applications import Starlette

from chassis.sql.engine import is_current
from chassis.telemetry.instruments import Telemetry
from employee_api.activities import ActivityHandlers
from employee_api.auth.api_tokens import ApiTokenHandlers, find_actor
from employee_api.auth.login_limiter import LoginLimiter
from employee_api.auth.logins import LoginHandlers
from employee_api.auth.sessions import SessionHandlers
from employee_api.auth.sign_ins import DeviceRepository, SignInHandlers
from employee_api.database import MIGRATIONS, Clock, utc_now
from employee_api.errors import NotReady
from employee_api.exports.handlers import ExportHandlers
from employee_api.failure_counts import FailureCounts
from employee_api.http.application import create_application
from employee_api.http.authorization import Authorizer
from employee_api.http.cross_site import CrossSitePolicy
from employee_api.http.idempotency import StoredResponses
from employee_api.http.operations import operations_of
from employee_api.settings import EmployeeApiSettings
from employee_api.tasks.comments import CommentHandlers
from employee_api.tasks.search import register_functions
from employee_api.tasks.tasks import TaskHandlers
from employee_api.users.accounts import UserHandlers
from employee_api.users.password_changes import PasswordHandlers
from employee_api.users.passwords import PasswordHasher
from employee_api.users.registration import NewUserPreparer, RegistrationHandlers
from employee_api.users.repository import UserRepository


async def check_database(engine: AsyncEngine) -> None:
    """Raise NotReady if the database does not respond or has pending migrations."""
    try:
        current = await is_current(engine, MIGRATIONS)
    except SQLAlchemyError as error:
        raise NotReady from error
    if not current:
        raise NotReady


def build(
    settings: EmployeeApiSettings,
    engine: AsyncEngine,
    password_hasher: PasswordHasher,
    telemetry: Telemetry,
    clock: Clock = utc_now,
) -> Starlette:
    """Build the application. The caller must close the engine and the password hasher."""
    idle, absolute = (timedelta(seconds=s) for s in (settings.session_idle_seconds, settings.session_absolute_seconds))
    register_functions(engine)
    sessions, tokens = SessionHandlers(engine, clock, idle, absolute), ApiTokenHandlers(engine, clock)
    users = UserRepository(engine, clock)
    finders = partial(find_actor, sessions, tokens), users.find_role
    authorizer = Authorizer(settings.auth_mode, *finders, telemetry)
    new_users = NewUserPreparer(password_hasher, settings.min_password_length, settings.breached_passwords_file)
    counts = FailureCounts(engine, clock, timedelta(seconds=settings.failed_logins_window_seconds))
    limiter = LoginLimiter(counts, settings.failed_logins_per_email, settings.failed_logins_per_address)
    devices, sign_ins = DeviceRepository(engine, clock), SignInHandlers(engine, clock)
    passwords = PasswordHandlers(engine, clock, new_users, authorizer)
    logins = LoginHandlers(users, password_hasher, sessions, devices, sign_ins, authorizer, limiter, passwords, tokens)
    registration = RegistrationHandlers(
        engine, clock, new_users, authorizer, counts, settings.registration, settings.registrations_per_address
    )
    exports = ExportHandlers(engine, telemetry.tracer, defuse_formulas=settings.csv_defuse_formulas)
    accounts = UserHandlers(engine, clock, new_users, authorizer), sessions, tokens
    tasks = TaskHandlers(engine, clock), CommentHandlers(engine, clock, authorizer)
    activities = ActivityHandlers(engine, clock)
    operations = operations_of(logins, sign_ins, passwords, registration, *accounts, *tasks, activities, exports)
    policy = CrossSitePolicy(settings.allowed_origins, refused_unenforced=not settings.allow_cross_site)
    stored = StoredResponses(engine, clock)
    return create_application(operations, authorizer, policy, stored, checks_host=bool(settings.allowed_hosts))
