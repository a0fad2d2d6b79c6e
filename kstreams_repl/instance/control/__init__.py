"""Commands to a running instance and its reports: through files on the driver's host, through the journal on another."""
