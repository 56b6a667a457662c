# Prints the requirement of uv itself, with hashes, from uv.lock: sed -n -f .ci/uv.sed uv.lock
/^name = "uv"$/,/^$/{
s/^version = "\(.*\)"$/uv==\1 \\/p
s/^    { url = .* hash = "\([^"]*\)".*/    --hash=\1 \\/p
}
