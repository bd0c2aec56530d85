"""Work on visitors' files, in processes of their own, and the files that the server keeps."""
