"""A deeply supervised net among scikit-learn's tools: cross-validation beside an SVC, and what each layer knows.

    python examples/scikit_learn.py

Twenty seconds on one core; the 8x8 digits come with scikit-learn. Needs: pip install "deepsup[sklearn]"
"""

from sklearn.datasets import load_digits
from sklearn.model_selection import StratifiedKFold, cross_val_score
from sklearn.svm import SVC

from deepsup import DeeplySupervisedClassifier

digits = load_digits()
folds = StratifiedKFold(3)
net = DeeplySupervisedClassifier(epochs=10, random_state=0)
print(f"SVC     {cross_val_score(SVC(), digits.data, digits.target, cv=folds).mean():.3f}")
print(f"net     {cross_val_score(net, digits.images, digits.target, cv=folds).mean():.3f}")

train, test = next(folds.split(digits.images, digits.target))
net.fit(digits.images[train], digits.target[train])
print("\nby layer, first fold")
for layer, scores in net.companion_scores(digits.images[test]).items():
    print(f"{layer:<8}{(scores.argmax(1) == digits.target[test]).mean():.3f}")
print(f"{'output':<8}{net.score(digits.images[test], digits.target[test]):.3f}")
