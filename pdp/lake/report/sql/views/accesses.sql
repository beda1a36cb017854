-- Checks that count: permits and denials that made the answer, each object under its one type, by kind of action.
-- A load also asks for the right to write, to choose the storage access: that is no write.
SELECT
  usage.*, substring_index(object, ':', 1) AS type, substring(object, instr(object, ':') + 1) AS path,
  CASE
    WHEN action IN ('read_data', 'select', 'READ_ENTITY_VALUE') THEN 'read'
    WHEN action = 'include_in_list' OR action LIKE 'list\_%' OR action IN ('READ_ENTRIES', 'READ_CONTENT_KEY') THEN 'list'
    WHEN action LIKE 'grant\_%' OR action LIKE 'revoke\_%' OR action IN ('change_ownership', 'set_managed_access',
      'read_assignments', 'manage_tags', 'assume') THEN 'manage'
    WHEN action LIKE 'get\_%' OR action LIKE 'read%' OR action LIKE 'search\_%' OR action LIKE 'VIEW\_%'
      OR action LIKE 'LIST\_%' OR action = 'use' THEN 'metadata'
    ELSE 'write'
  END AS kind
FROM usage LEFT JOIN known_views ON known_views.path = substring(object, instr(object, ':') + 1)
WHERE event = 'decision' AND invalid = '' AND allowed = answer
  AND NOT (NOT asked AND action IN ('read_data', 'select', 'get_metadata', 'include_in_list')
    AND substring_index(object, ':', 1) = if(known_views.path IS NULL, 'view', 'table'))
  AND NOT (NOT asked AND action = 'write_data' AND surface NOT IN ('trino', 'list'))
