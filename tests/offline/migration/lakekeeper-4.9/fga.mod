schema: '1.2'
contents:
  - model.fga
