# An image for machines with NVIDIA GPUs (driver and NVIDIA Container Toolkit on the host):
#
#   docker build -t fairseq_adv .
#   docker run --rm --gpus all fairseq_adv                        # reports versions and GPUs
#   docker run --rm --gpus all -v "$PWD:/work" --user "$(id -u):$(id -g)" fairseq_adv \
#       fairseq-adv train data --encoder minilm --save-dir out
#
# For --compile, which needs a C++ compiler, add --build-arg PACKAGES="g++ python3-dev".
#
# The project has built it with buildah on a stand-in for the base image, Debian 12 with Python 3.11: 5.7 GB besides the
# base. `fairseq-adv doctor`, a training and an attack ran in it on a CPU. On the base image below, on a GPU, or with
# PACKAGES, nobody has built or run it yet.
# torch 2.13.0 is built for CUDA 13.0, which needs an NVIDIA driver of 580 or newer.
FROM nvidia/cuda:13.0.2-base-ubuntu24.04
ARG PACKAGES
# hadolint ignore=DL3008,SC2086
RUN apt-get update && \
    apt-get install --yes --no-install-recommends python3-venv $PACKAGES && \
    rm -rf /var/lib/apt/lists/* && \
    useradd --uid 10001 --create-home researcher && \
    install -d -o researcher /work && \
    python3 -m venv --upgrade-deps /opt/fairseq_adv
ENV PATH=/opt/fairseq_adv/bin:$PATH PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1
WORKDIR /src
# A layer of its own, which stays the same when the project changes. torch brings its own CUDA libraries; the host
# brings the driver.
COPY constraints.txt ./
RUN pip install -c constraints.txt torch
COPY setup.py pyproject.toml README.md LICENSE fairseq_adv_compat.pth ./
COPY scripts/repack_wheels.py scripts/
COPY fairseq_adv fairseq_adv
COPY fairseq_adv_compat fairseq_adv_compat
ARG EXTRAS=hf,plots,sweeps
RUN python scripts/repack_wheels.py wheels && \
    pip install --find-links wheels -c constraints.txt ".[$EXTRAS]" && \
    rm -rf build wheels
# HOME: a --user without an account would have none to write caches to.
ENV HOME=/tmp
USER 10001
WORKDIR /work
CMD ["fairseq-adv", "doctor"]
