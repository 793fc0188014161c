-- The databases of the ledger and of Dagster's history, and a role for each part: `eventsync_migration` owns and changes their
-- tables, `eventsync_worker` works on the rows of both, `eventsync_webserver` (the UI and the daemon) on those of Dagster alone.
-- None is a superuser. Run by psql as a superuser, once; the passwords are files in SECRETS.
\set ON_ERROR_STOP on
\set migration_password `cat "${SECRETS:-/run/secrets}/migration_password"`
\set worker_password `cat "${SECRETS:-/run/secrets}/worker_password"`
\set webserver_password `cat "${SECRETS:-/run/secrets}/webserver_password"`
CREATE ROLE eventsync_migration LOGIN PASSWORD :'migration_password';
CREATE ROLE eventsync_worker LOGIN PASSWORD :'worker_password';
CREATE ROLE eventsync_webserver LOGIN PASSWORD :'webserver_password';
CREATE DATABASE eventsync OWNER eventsync_migration TEMPLATE template0 ENCODING 'UTF8';
CREATE DATABASE dagster OWNER eventsync_migration TEMPLATE template0 ENCODING 'UTF8';
REVOKE ALL ON DATABASE eventsync, dagster FROM PUBLIC;
GRANT CONNECT ON DATABASE eventsync TO eventsync_worker;
GRANT CONNECT ON DATABASE dagster TO eventsync_worker, eventsync_webserver;

\connect eventsync
REVOKE CREATE ON SCHEMA public FROM PUBLIC;
ALTER DEFAULT PRIVILEGES FOR ROLE eventsync_migration GRANT SELECT, INSERT, UPDATE, DELETE ON TABLES TO eventsync_worker;
ALTER DEFAULT PRIVILEGES FOR ROLE eventsync_migration GRANT USAGE ON SEQUENCES TO eventsync_worker;

\connect dagster
REVOKE CREATE ON SCHEMA public FROM PUBLIC;
ALTER DEFAULT PRIVILEGES FOR ROLE eventsync_migration
  GRANT SELECT, INSERT, UPDATE, DELETE ON TABLES TO eventsync_worker, eventsync_webserver;
ALTER DEFAULT PRIVILEGES FOR ROLE eventsync_migration GRANT USAGE ON SEQUENCES TO eventsync_worker, eventsync_webserver;

-- The superuser logs in on the server's own host only, where no password is asked for.
ALTER ROLE CURRENT_USER PASSWORD NULL;
