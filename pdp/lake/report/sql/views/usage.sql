-- Checks, counted: one row for each kind of check and day. All other questions read this instead of `decisions`.
SELECT
  day, event, surface, caller, principal, `as` AS holder, coalesce(acting_role, '') AS acting_role, action,
  if(warehouse IS NULL, resource, substring_index(resource, '@', 1)) AS object,
  coalesce(allowed, false) AS allowed, coalesce(answer, allowed, false) AS answer, coalesce(`by`, '') AS reason,
  coalesce(delegated, false) AS delegated, coalesce(asked, true) AS asked, coalesce(invalid, '') AS invalid, errors,
  if(delegated AND query_user <> principal, query_user, NULL) AS query_user,
  count(*) AS checks, min(time) AS first_time, max(time) AS last_time, max_by(id, time) AS sample_id
FROM decisions
GROUP BY ALL
