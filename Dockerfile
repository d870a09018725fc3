# An image for machines with NVIDIA GPUs (driver and NVIDIA Container Toolkit on the host):
#
#   docker build -t fairseq_adv .
#   docker run --rm --gpus all fairseq_adv                        # reports versions and GPUs
#   docker run --rm --gpus all -v "$PWD:/work" --user "$(id -u):$(id -g)" fairseq_adv \
#       fairseq-adv train data --encoder minilm --save-dir out
#
# The project has built it with buildah on a stand-in for the base image, Debian 12 with Python 3.11 and PyTorch for CPUs;
# `fairseq-adv doctor` and a training ran in it. On the base image below, or a GPU, nobody has built or run it yet.
# A test compares its versions with constraints.txt and setup.py. torch 2.13.0 is built for CUDA 13.0, which
# needs an NVIDIA driver of 580 or newer.
FROM nvidia/cuda:13.0.2-base-ubuntu24.04 AS build
# hadolint ignore=DL3008
RUN apt-get update && \
    apt-get install --yes --no-install-recommends g++ python3-dev python3-venv && \
    rm -rf /var/lib/apt/lists/*
ENV PATH=/opt/fairseq_adv/bin:$PATH PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1
# A newer pip refuses the metadata of omegaconf 2.0.6, which fairseq 0.12.2 requires.
RUN python3 -m venv /opt/fairseq_adv && pip install 'pip==24.0'
WORKDIR /src
COPY constraints.txt ./
# torch brings its own CUDA libraries; the host brings the driver.
RUN pip install -c constraints.txt torch torchaudio
COPY setup.py pyproject.toml README.md LICENSE fairseq_adv_compat.pth ./
COPY fairseq_adv fairseq_adv
COPY fairseq_adv_compat fairseq_adv_compat
ARG EXTRAS=plots,sweeps
RUN pip install -c constraints.txt ".[$EXTRAS]"

FROM nvidia/cuda:13.0.2-base-ubuntu24.04
# hadolint ignore=DL3008
RUN apt-get update && \
    apt-get install --yes --no-install-recommends python3 && \
    rm -rf /var/lib/apt/lists/* && \
    useradd --uid 10001 --create-home researcher && \
    install -d -o researcher /work
COPY --from=build /opt/fairseq_adv /opt/fairseq_adv
# HOME: a --user without an account would have none to write caches to.
ENV PATH=/opt/fairseq_adv/bin:$PATH HOME=/tmp
USER 10001
WORKDIR /work
CMD ["fairseq-adv", "doctor"]
