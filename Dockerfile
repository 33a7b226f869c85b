# One image for all of accelshare: docker (with BuildKit), podman and buildah build it; docs/how-to/images.md says how.
#
# BASE     Python 3.11 or newer on glibc, slim; the name has no registry, so your engine's own settings decide where it is from.
# BUILDER  the same Python with pip and venv, if BASE has no pip.
# SOURCE_DATE_EPOCH  the time of every file; the same source at the same time is the same image.
ARG BASE=python:3.11-slim
ARG BUILDER=${BASE}

FROM ${BUILDER} AS build
ARG SOURCE_DATE_EPOCH=0
# No cache to carry along. pip compiles nothing: the last step does, by content alone. Were a file compiled before, in the same size,
# an engine that tells layers apart by size and time (podman on vfs) would keep the first one.
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_ROOT_USER_ACTION=ignore \
    PYTHONDONTWRITEBYTECODE=1 PYTHONHASHSEED=0
WORKDIR /build
COPY requirements/build.txt requirements/runtime.txt requirements/
# How pip reaches its index is the business of the machine that builds, and never part of the image: two secrets, both optional.
RUN --mount=type=secret,id=pip.conf,target=/etc/pip.conf --mount=type=secret,id=ca.crt \
    python3 -m venv --without-pip tools && python3 -m venv --without-pip /opt/accelshare \
 && python3 -m pip --python tools/bin/python install --no-compile --only-binary :all: --require-hashes -r requirements/build.txt \
 && python3 -m pip --python /opt/accelshare/bin/python install --no-compile --only-binary :all: --require-hashes -r requirements/runtime.txt
COPY pyproject.toml README.md LICENSE ./
COPY src src
RUN tools/bin/python -m hatchling build --target wheel \
 && python3 -m pip --python /opt/accelshare/bin/python install --no-compile --no-deps --no-index dist/*.whl \
 && rm /opt/accelshare/bin/[Aa]ctivate* \
 && /opt/accelshare/bin/python -m compileall -q --invalidation-mode unchecked-hash /opt/accelshare/lib \
 && find /opt/accelshare -exec touch --no-dereference --date="@${SOURCE_DATE_EPOCH}" {} +

# The bill of materials also lists the packages of the base; the program that writes it stays out of the image.
FROM ${BASE} AS sbom
ARG SOURCE_DATE_EPOCH=0
COPY --from=build /opt/accelshare /opt/accelshare
COPY cluster/image/sbom.py /sbom/
RUN ["/opt/accelshare/bin/python", "-B", "/sbom/sbom.py", "/opt/accelshare/sbom.cdx.json"]

FROM ${BASE}
LABEL org.opencontainers.image.title="accelshare" \
      org.opencontainers.image.description="Accelerator sharing for Kubernetes: one engine, one data file per vendor" \
      org.opencontainers.image.licenses="Apache-2.0"
ENV PATH=/opt/accelshare/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
    PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1 \
    MALLOC_ARENA_MAX=1 MALLOC_TRIM_THRESHOLD_=131072
COPY --from=sbom /opt/accelshare /opt/accelshare
USER 65532:65532
ENTRYPOINT ["accelshare"]
