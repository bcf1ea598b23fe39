"""Object stores: S3, Google Cloud Storage, Azure, Hugging Face; credentials and uploads."""
