"""Parts of `turbopump bench` beside the load itself."""
