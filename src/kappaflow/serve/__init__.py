"""The local web page: uploads, jobs and results over HTTP; the retrievals themselves run as on the command line."""
