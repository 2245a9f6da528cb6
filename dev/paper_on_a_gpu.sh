#!/bin/sh
# The paper's full protocol on one GPU, resumable: give the same command again and it goes on. Not run by us: nobody
# here has a GPU. The order is that of what the paper claims; each target leaves its record after each group of rows.
#
#     sh dev/paper_on_a_gpu.sh [RESULTS FOLDER]
set -eu
results=${1:-results}
for data in mnist cifar10 cifar100 svhn; do
    deepsup data get "$data" $([ "$data" = svhn ] && echo --extra)
done
for target in cifar10-augmented cifar10 mnist svhn cifar100 fig2b-nin; do
    # a few minutes: every row should learn before hundreds of epochs are spent on it; those that do not are named
    deepsup reproduce "$target" --preset start --results "$results/start" --resume
    python3 - "$results/start/$target-start.json" <<'END'
import json, sys
for row in json.load(open(sys.argv[1]))["rows"]:
    if row["mean"] > 2 * row["guessing"] - 100:
        print(f"after 300 steps, {row['row']} is at {row['mean']:.1f} % error: no better than guessing")
END
done
for target in fig2b-nin budget cifar10-augmented budget-cifar10 cifar10 svhn cifar100 mnist fig2a-nin fig2c-nin \
    robustness-nin pretraining-nin l1-l2-nin gradient-variance fig3; do
    deepsup reproduce "$target" --preset paper --results "$results" --resume
done
deepsup reproduce summary --results "$results"
