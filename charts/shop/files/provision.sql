\getenv role ROLE
\getenv password ROLE_PASSWORD
SELECT format('CREATE ROLE %I LOGIN', :'role')
    WHERE NOT EXISTS (SELECT FROM pg_roles WHERE rolname = :'role') \gexec
ALTER ROLE :"role" PASSWORD :'password';
SELECT format('CREATE DATABASE %I OWNER %I', :'role', :'role')
    WHERE NOT EXISTS (SELECT FROM pg_database WHERE datname = :'role') \gexec
REVOKE ALL ON DATABASE :"role" FROM PUBLIC;
