"""The command line: reads files and arguments, asks the service, prints. Holds no policy."""
