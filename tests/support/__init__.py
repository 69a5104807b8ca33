"""Material that several test folders share: small recordings and programs of known behaviour."""
