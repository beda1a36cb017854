-- title: Hours of the week
-- text: Requests by the day of the week (1 is Monday) and the hour, in UTC.
-- order: weekday, hour
SELECT weekday(time) + 1 AS weekday, hour(time) AS hour, count(*) AS requests
FROM requests
GROUP BY weekday(time) + 1, hour(time)
