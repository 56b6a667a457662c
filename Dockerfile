# Builds any of the images, from the repository's root:
#   docker build --build-arg SERVICE=cart -t cart .
#   docker build --build-arg SERVICE=employee-api --build-arg FOLDER=employee-api -t employee-api .
ARG BASE=docker.io/library/python:3.13.15-slim-bookworm@sha256:2325bb286ec344af3e5898cc224b5844e2707ac6e26b1632516fd3edc84a5e26

# What all images install, with hashes, from the same lock as development and tests. The stages below are rebuilt only if
# what they copy from here has changed.
FROM ${BASE} AS locked
WORKDIR /workspace
COPY .ci/uv.sed uv.lock ./
RUN sed -n -f uv.sed uv.lock > uv.txt \
    && pip install --no-cache-dir --root-user-action=ignore --no-deps --only-binary=:all: --require-hashes --requirement uv.txt
# Copy no sources here: `skaffold dev` would rebuild every image after each change.
COPY pyproject.toml ./
# hadolint ignore=SC2046
RUN uv export --quiet --frozen --no-header --no-annotate --no-emit-workspace --output-file /shared.txt \
        $(sed -n 's/^    "\(.*-service\)",$/--package=\1/p' uv.lock)

# The third-party packages that services need, in one layer that all images share.
FROM ${BASE} AS packages
# binutils only strips here and is in no image, so its version needs no pin.
# hadolint ignore=DL3008
RUN apt-get update && apt-get install -y --no-install-recommends binutils && rm -rf /var/lib/apt/lists/*
COPY --from=locked /shared.txt /
# Bytecode that refers to its source by hash, not by time, is the same in each build.
RUN pip install --no-cache-dir --root-user-action=ignore --no-compile --no-deps --only-binary=:all: --require-hashes \
        --target /packages --requirement /shared.txt \
    && find /packages -type d \( -name tests -o -name testing -o -path /packages/bin \) -prune -exec rm -rf {} + \
    && find /packages -name '*.so*' -exec strip --strip-unneeded {} + \
    && python -m compileall -q -o 2 --invalidation-mode unchecked-hash /packages

# Python without what only builds need: no package managers, no Perl, no logs. The standard library is compiled here,
# because a process cannot store bytecode on a read-only root.
# /data is for group 0, too, in which platforms such as OpenShift run any user id.
FROM ${BASE} AS python
RUN pip uninstall --yes --quiet --root-user-action=ignore pip \
    && dpkg --purge --force-remove-essential --force-remove-protected --force-depends perl-base apt libapt-pkg6.0 \
    && rm -rf /usr/local/lib/python3.*/ensurepip /usr/local/lib/python3.*/idlelib /usr/local/include /root/.cache \
        /var/cache/* /var/log/* \
    && python -m compileall -q -o 2 -f --invalidation-mode unchecked-hash /usr/local/lib/python3.* \
    && install -d -o 10001 -g 0 -m 775 /data

# PYTHONOPTIMIZE drops docstrings and asserts, on which nothing here depends: 2 MB less in each process. One malloc arena
# for all threads took 1 to 2 MB less under load and no more CPU: Python's lock already keeps most threads apart.
#
# One flat layer, so that what was removed is not in the image.
FROM scratch AS runtime
ENV PATH=/usr/local/bin:/usr/bin:/bin LANG=C.UTF-8 \
    PYTHONPATH=/app:/packages PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1 PYTHONOPTIMIZE=2 MALLOC_ARENA_MAX=1 \
    GRPC_VERBOSITY=NONE GRPC_EXPERIMENTS=-event_engine_client,-event_engine_listener
# hadolint ignore=DL3067
COPY --from=python / /
COPY --from=packages /packages /packages
WORKDIR /data
USER 10001:10001

# What only one image needs, such as SQLModel or Locust. It becomes part of the image's last layer, so that the layer which
# all images share does not contain it. Locust requires pytest for tests that are written for it.
FROM locked AS own-packages
ARG SERVICE
ARG FOLDER=services/${SERVICE}
COPY ${FOLDER}/pyproject.toml ${FOLDER}/
# hadolint ignore=SC2046
RUN uv export --quiet --frozen --no-header --no-annotate --no-emit-workspace --output-file /own.txt \
        --project "${FOLDER}" --all-extras --prune pytest \
        $(sed -n 's/^\([a-z0-9._-]*\)==.*/--no-emit-package=\1/p' /shared.txt) \
    && mkdir /packages \
    && if [ -s /own.txt ]; then \
        pip install --no-cache-dir --root-user-action=ignore --no-compile --no-deps --only-binary=:all: --require-hashes \
            --target /packages --requirement /own.txt \
        && find /packages -type d \( -name tests -o -path /packages/bin \) -prune -exec rm -rf {} +; \
    fi

FROM runtime AS code
# Only this stage runs as root; the images start from `runtime` again.
# hadolint ignore=DL3002
USER 0:0
WORKDIR /code
ARG SERVICE
ARG FOLDER=services/${SERVICE}
COPY protos/gen services/_chassis/src ${FOLDER}/src ./
RUN package=$(basename "$(dirname ./*/__main__.py)") \
    && printf 'import runpy\n\nrunpy.run_module("%s", run_name="__main__", alter_sys=True)\n' "$package" \
        > __main__.py
COPY --from=own-packages /packages ./
# Readable by every user id, whatever the umask of the checkout.
RUN python -m compileall -q -o 2 --invalidation-mode checked-hash . && chmod -R a+rX .

FROM runtime
# Root owns the code, unless sources are to be synced into a running container: then its user does.
ARG OWNER=0:0
COPY --from=code --chown=${OWNER} /code /app
ARG SERVICE
ARG VERSION=0.1.0
ARG REVISION=unknown
ARG SOURCE=unknown
ARG BASE
LABEL org.opencontainers.image.title="shop/${SERVICE}" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}" \
      org.opencontainers.image.source="${SOURCE}" \
      org.opencontainers.image.base.name="${BASE}"
STOPSIGNAL SIGTERM
# Python runs the folder's __main__.py as PID 1, so it gets the signals; arguments such as `migrate` go to the service.
ENTRYPOINT ["python", "/app"]
