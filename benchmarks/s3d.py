"""Speed of the S3D video encoder on this machine, in clips a second.

One clip gives the vector of one second of video. The weights are random, which does not change the
speed.

    python benchmarks/s3d.py --threads 2 > benchmarks/results/s3d.json
"""

from __future__ import annotations

import argparse
import json
import os
import time

import torch

from cefito.encoders.s3d import S3D


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--size", type=int, default=224, help="height and width in pixels")
    parser.add_argument("--device", default="cpu")
    parser.add_argument(
        "--clips", type=int, default=4, help="clips measured in each case, at least"
    )
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    network = S3D().eval().to(given.device)
    generator = torch.Generator().manual_seed(0)
    cases = []
    for frames in (16, 32):
        for batch in (1, 4):
            clips = torch.rand(batch, 3, frames, given.size, given.size, generator=generator).to(
                given.device
            )
            rounds = -(-given.clips // batch)
            with torch.inference_mode():
                network(clips[:1]).cpu()  # warm up
                wall, used = time.perf_counter(), time.process_time()
                for _ in range(rounds):
                    network(clips).cpu()
                wall, used = time.perf_counter() - wall, time.process_time() - used
            done = rounds * batch
            cases.append(
                {
                    "frames": frames,
                    "batch": batch,
                    "clips": done,
                    "clips_per_second": round(done / wall, 3),
                    "cpu_seconds_per_clip": round(used / done, 3),
                }
            )
    print(
        json.dumps(
            {
                "network": "S3D with random weights",
                "size": given.size,
                "device": given.device,
                "threads": given.threads,
                "torch": torch.__version__,
                "cores": os.cpu_count(),
                "load_average_at_the_end": round(os.getloadavg()[0], 2),
                "cases": cases,
            },
            indent=1,
        )
    )


if __name__ == "__main__":
    main()
