-- A role and a schema for each service, and nothing shared between them. The image runs this on an empty database; it may be run again
-- whenever a service was added or a password was changed.
SET client_min_messages = warning;
REVOKE ALL ON SCHEMA public FROM PUBLIC;
DO $furnish$
DECLARE
  wanted record;
BEGIN
  EXECUTE format('REVOKE ALL ON DATABASE %I FROM PUBLIC', current_database());
  FOR wanted IN
    SELECT each.key AS service, 'triplane_' || each.key AS role, each.value AS password
      FROM jsonb_each_text($passwords$@PASSWORDS@$passwords$) AS each
  LOOP
    IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = wanted.role) THEN
      EXECUTE format('CREATE ROLE %I', wanted.role);
    END IF;
    EXECUTE format('ALTER ROLE %I LOGIN PASSWORD %L', wanted.role, wanted.password);
    EXECUTE format('ALTER ROLE %I SET search_path = %I', wanted.role, wanted.service);
    EXECUTE format('GRANT CONNECT ON DATABASE %I TO %I', current_database(), wanted.role);
    EXECUTE format('CREATE SCHEMA IF NOT EXISTS %I AUTHORIZATION %I', wanted.service, wanted.role);
  END LOOP;
END
$furnish$;
