-- Grants in effect at the end, with the time since which they are.
SELECT principal, privilege, object, min(since) AS since, max_by(actor, since) AS actor
FROM (
  SELECT
    principal, privilege, object, change_id, max_by(kind, struct(sequence, number)) AS kind,
    max_by(time, struct(sequence, number)) AS since, max_by(actor, struct(sequence, number)) AS actor
  FROM (SELECT *, coalesce(get_json_object(change, '$.grant.id'), '') AS change_id FROM facts)
  WHERE kind IN ('grant_added', 'grant_removed')
    AND epoch = (SELECT max_by(split(revision, '\\.')[0], struct(time, id)) FROM requests)
  GROUP BY principal, privilege, object, change_id
)
WHERE kind = 'grant_added'
GROUP BY principal, privilege, object
