-- title: Callers
-- text: Requests by the sender and the surface that received them.
-- order: requests DESC, caller, surface
-- sum: requests, checks, refused
SELECT
  caller, surface, coalesce(requests, 0) AS requests, coalesce(checks, 0) AS checks, coalesce(refused, 0) AS refused,
  median_us, slowest_percent_us, greatest(last_time, last_refusal) AS last_time
FROM (
  SELECT
    coalesce(caller, '') AS caller, coalesce(surface, '') AS surface, count(*) AS requests, sum(checks) AS checks,
    percentile_approx(latency_us, 0.5, 1000) AS median_us,
    percentile_approx(latency_us, 0.99, 1000) AS slowest_percent_us, max(time) AS last_time
  FROM requests GROUP BY ALL
) FULL JOIN (
  SELECT
    coalesce(caller, '') AS caller, coalesce(surface, '') AS surface,
    sum(coalesce(try_cast(get_json_object(details, '$.suppressed') AS BIGINT), 1)) AS refused, max(time) AS last_refusal
  FROM events WHERE event = 'refusal' GROUP BY ALL
) USING (caller, surface)
