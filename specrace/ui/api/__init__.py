"""The endpoints that programs call, and the routes for logs."""
