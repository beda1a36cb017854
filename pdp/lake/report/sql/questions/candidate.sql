-- title: The candidate
-- text: Who gains and who loses access under the candidate of the newest replay.
-- order: kind, checks DESC, principal, object, action
-- sum: checks
SELECT
  kind, principal, action, resource AS object, checks, last_used AS last_time, by_before AS reason, by_after AS reason_after,
  element_at(samples, -1) AS sample_id, candidate
FROM replay_differences
WHERE kind IN ('gained', 'lost')
  AND run = (SELECT max_by(run, run_time) FROM replay_differences WHERE candidate <> 'recorded')
