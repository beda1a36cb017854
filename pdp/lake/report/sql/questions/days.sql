-- title: Days
-- text: Permits, denials and refused requests of each day. Objects that lists hide are no denials here.
-- order: day DESC
-- sum: requests, allowed, denied, refused
SELECT
  day, coalesce(requests, 0) AS requests, coalesce(allowed, 0) AS allowed, coalesce(denied, 0) AS denied,
  coalesce(refused, 0) AS refused, coalesce(principals, 0) AS principals, median_us, slowest_percent_us
FROM (
  SELECT
    day, count(*) AS requests, percentile_approx(latency_us, 0.5, 1000) AS median_us,
    percentile_approx(latency_us, 0.99, 1000) AS slowest_percent_us
  FROM requests GROUP BY day
) FULL JOIN (
  SELECT
    day, sum(if(allowed, checks, 0)) AS allowed, sum(if(NOT allowed AND kind <> 'list', checks, 0)) AS denied,
    count(DISTINCT principal) AS principals
  FROM accesses GROUP BY day
) USING (day) FULL JOIN (
  SELECT day, sum(coalesce(try_cast(get_json_object(details, '$.suppressed') AS BIGINT), 1)) AS refused
  FROM events WHERE event = 'refusal' GROUP BY day
) USING (day)
