-- Grants in effect at the end, with the time since which they are: by the newest snapshot of all facts and the changes
-- after it. A grant that this snapshot lacks has ended, even if no change says so. Other epochs are other histories.
WITH history AS (
  SELECT *, coalesce(get_json_object(change, '$.grant.id'), '') AS change_id, struct(sequence, number) AS place
  FROM facts
  WHERE epoch = (SELECT max_by(split(revision, '\\.')[0], struct(time, id)) FROM requests)
),
snapshots AS (
  SELECT coalesce(max(sequence), 0) AS newest, collect_set(sequence) AS sequences FROM history WHERE snapshot
),
kept AS (
  SELECT
    principal, privilege, object, change_id, max_by(kind, place) AS kind, max(sequence) AS sequence,
    max(if(kind = 'grant_removed', place, NULL)) AS removed, collect_set(if(snapshot, sequence, NULL)) AS held,
    collect_list(if(kind = 'grant_added', struct(place, time, actor), NULL)) AS added
  FROM history
  WHERE kind IN ('grant_added', 'grant_removed')
  GROUP BY principal, privilege, object, change_id
),
runs AS (  -- the first addition after the last removal and after the last snapshot without the grant
  SELECT
    kept.*, array_min(filter(added, a -> coalesce(a.place > removed, true)
      AND coalesce(a.place.sequence > array_max(array_except(sequences, held)), true))) AS run
  FROM kept CROSS JOIN snapshots
  WHERE kept.kind = 'grant_added' AND kept.sequence >= snapshots.newest
)
SELECT principal, privilege, object, min(run.time) AS since, max_by(run.actor, run.time) AS actor
FROM runs
GROUP BY principal, privilege, object
