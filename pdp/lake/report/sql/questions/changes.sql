-- title: Changes
-- text: Changes of policies, and of grants and objects by management.
-- order: time DESC, what
SELECT
  time, 'policies' AS what, '' AS actor,
  concat(if(time = min(time) OVER (), 'first policies: ', 'new policies: '), digest) AS change
FROM (SELECT min(time) AS time, element_at(split(revision, '\\.'), -1) AS digest FROM requests GROUP BY 2)
UNION ALL
SELECT
  time, if(kind LIKE 'grant%', 'grant', 'object'), coalesce(actor, ''),
  CASE kind
    WHEN 'grant_added' THEN concat('+ ', privilege, ' on ', object, ' for ', principal)
    WHEN 'grant_removed' THEN concat('- ', privilege, ' on ', object, ' for ', principal)
    WHEN 'delete' THEN concat('- ', object)
    ELSE concat('put ', object)
  END
FROM facts WHERE NOT snapshot AND sequence > (SELECT min(sequence) FROM facts)
