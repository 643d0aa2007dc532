#!/usr/bin/env python3
"""Reads a Trireme checkpoint into a dictionary (h5py, numpy); as a program, prints what is in it.

    from read_checkpoint import read_checkpoint
    checkpoint = read_checkpoint("runs/digits/checkpoints/best.h5")
    checkpoint["model"]["head.weight"]           # numpy array [out, in]

    python3 tools/read_checkpoint.py FILE.h5 [PARAMETER]
"""
import sys

import h5py
import numpy


def _plain(value):
    """Attributes and texts as Python's own types."""
    if isinstance(value, bytes):
        return value.decode()
    return value.item() if isinstance(value, numpy.generic) else value


def _arrays(group):
    return {name: dataset[()] for name, dataset in group.items()}


def read_checkpoint(path):
    """A dictionary with model, ema (None without an average), optim {state: {parameter: array}}, optimizer,
    position, config (text), shift and scale of the inputs, sample, outputs, samples, trireme and created."""
    with h5py.File(path, "r") as file:
        if file.attrs.get("format") != "trireme-checkpoint":
            raise ValueError(f"{path}: no Trireme checkpoint")
        if file.attrs["version"] > 1:
            raise ValueError(f"{path}: format version {file.attrs['version']}, known is 1")
        states = [state for state in _plain(file["optim"].attrs["states"]).split(",") if state]
        data = {name: _plain(value) for name, value in file["data"].attrs.items()}
        sample = data.pop("sample")
        return {
            "trireme": _plain(file.attrs["trireme"]),
            "created": _plain(file.attrs["created"]),
            "model": _arrays(file["model"]),
            "ema": _arrays(file["ema"]) if "ema" in file else None,
            "optimizer": _plain(file["optim"].attrs["name"]),
            "optim": {state: _arrays(file["optim"][state]) for state in states},
            "position": {name: _plain(value) for name, value in file["position"].attrs.items()},
            "config": _plain(file["config"][()]),
            "shift": file["data/shift"][()],
            "scale": file["data/scale"][()],
            "sample": () if sample == "scalar" else tuple(int(extent) for extent in sample.split("x")),
            **data,
        }


def main(path, parameter=None):
    checkpoint = read_checkpoint(path)
    if parameter is not None:
        numpy.set_printoptions(threshold=sys.maxsize)
        print(checkpoint["model"][parameter])
        return
    print(f"{path}: written {checkpoint['created']} by trireme {checkpoint['trireme']}")
    print("position: " + ", ".join(f"{name} {value}" for name, value in checkpoint["position"].items()))
    states = ", ".join(checkpoint["optim"]) or "no states"
    print(f"optimizer: {checkpoint['optimizer']} ({states})")
    for name, array in checkpoint["model"].items():
        shape = "x".join(map(str, array.shape)) or "scalar"
        mean, spread = (array.mean(), array.std()) if array.size else (0, 0)
        print(f"{name:40} {shape:>16}  mean {mean:+.4g}  std {spread:.4g}")


if __name__ == "__main__":
    if len(sys.argv) not in (2, 3):
        sys.exit(__doc__)
    try:
        main(*sys.argv[1:])
    except (OSError, ValueError, KeyError) as error:
        sys.exit(f"read_checkpoint.py: {error}")
