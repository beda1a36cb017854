-- title: Totals
-- text: All that the lake holds, in one row.
-- order: requests
SELECT
  r.*, u.principals, u.objects, coalesce(u.allowed, 0) AS allowed, coalesce(u.denied, 0) AS denied,
  coalesce(u.hidden, 0) AS hidden_in_lists, coalesce(u.delegated, 0) AS delegated, coalesce(e.refused, 0) AS refused,
  coalesce(x.raised, 0) AS checks_with_errors
FROM (
  SELECT
    count(*) AS requests, coalesce(sum(checks), 0) AS checks, min(time) AS first_time, max(time) AS last_time,
    count(DISTINCT day) AS days, coalesce(sum(left_out), 0) AS left_out, min(coalesce(sampled, 1)) AS least_sampled,
    percentile_approx(latency_us, 0.5, 1000) AS median_us, percentile_approx(latency_us, 0.99, 1000) AS slowest_percent_us,
    count_if(stale) AS stale
  FROM requests
) r CROSS JOIN (
  SELECT
    count(DISTINCT principal) AS principals, count(DISTINCT if(kind IN ('read', 'write'), path, NULL)) AS objects,
    sum(if(allowed, checks, 0)) AS allowed, sum(if(NOT allowed AND kind <> 'list', checks, 0)) AS denied,
    sum(if(NOT allowed AND kind = 'list', checks, 0)) AS hidden,
    sum(if(allowed AND delegated AND kind = 'read', checks, 0)) AS delegated
  FROM accesses
) u CROSS JOIN (
  SELECT sum(coalesce(try_cast(get_json_object(details, '$.suppressed') AS BIGINT), 1)) AS refused
  FROM events WHERE event = 'refusal'
) e CROSS JOIN (
  SELECT sum(checks) AS raised FROM usage WHERE size(errors) > 0
) x
