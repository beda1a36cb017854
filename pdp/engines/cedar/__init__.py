"""Engine of Cedar policies: Lakekeeper's schema, entities of checks, decisions by cedarpy."""
