-- title: Attempts after the end of rights
-- text: Principals who lost a grant, and were denied afterwards on its objects. Grants that were given again are left out.
-- order: denied DESC, principal
-- sum: denied
WITH ended AS (
  SELECT r.*
  FROM (
    SELECT
      principal, privilege, object, max(time) AS removed, max_by(actor, struct(time, sequence, number)) AS removed_by
    FROM facts WHERE kind = 'grant_removed' GROUP BY principal, privilege, object
  ) r LEFT ANTI JOIN grants_now g
    ON g.principal = r.principal AND g.privilege = r.privilege AND g.object = r.object
),
reach AS (  -- objects of an ended grant; of an ended membership, those of the role
  SELECT *, object AS covered FROM ended WHERE object NOT LIKE 'role:%'
  UNION ALL
  SELECT ended.*, held.object
  FROM ended JOIN (
    SELECT DISTINCT principal, object FROM facts WHERE kind = 'grant_added' AND object NOT LIKE 'role:%'
  ) held ON held.principal = ended.object
  WHERE ended.object LIKE 'role:%'
),
attempts AS (
  SELECT
    a.principal, a.object, a.checks, a.first_time, a.last_time, min(r.removed) AS removed,
    min_by(r.removed_by, r.removed) AS removed_by, collect_set(concat(r.privilege, ' on ', r.object)) AS rights
  FROM accesses a JOIN reach r ON r.principal = a.principal AND a.first_time > r.removed AND (
    r.covered = a.object OR r.covered LIKE 'project:%' OR r.covered LIKE 'server%'
    OR startswith(a.path, concat(substring(r.covered, instr(r.covered, ':') + 1), '/'))
  )
  WHERE NOT a.allowed AND a.kind <> 'list'
  GROUP BY a.principal, a.object, a.checks, a.first_time, a.last_time, a.day, a.action, a.sample_id
)
SELECT
  principal, min(removed) AS removed, min_by(removed_by, removed) AS removed_by,
  concat_ws(', ', slice(array_sort(array_distinct(flatten(collect_list(rights)))), 1, 4)) AS rights,
  sum(checks) AS denied, count(DISTINCT object) AS objects, max(last_time) AS last_time
FROM attempts
GROUP BY principal
