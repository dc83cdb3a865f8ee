"""Which coverage is guaranteed, and which alpha to use, before anything is trained."""

import lazyknife as lk


def main() -> None:
    print("What do 500 rows and alpha = 0.1 certify?\n")
    for construction in ("plus", "minmax", "full"):
        certificate = lk.certify(n=500, alpha=0.1, construction=construction, base=lk.Public())
        print(f"{construction:>8}: {certificate.coverage:.3f}")
    private = lk.certify(n=500, alpha=0.1, base=lk.DPSGD(epsilon=0.1, delta=1e-3))
    print(f"    plus: {private.coverage:.3f} with a DP-SGD base of ε = 0.1\n")

    print("Which alpha certifies a coverage of 0.9?\n")
    for n in (50, 500):
        print(lk.plan(n=n, coverage=0.9, construction="minmax", base=lk.Public()), "\n")

    print("The whole certificate of the first plan:\n")
    plan = lk.plan(n=50, coverage=0.9, construction="minmax", base=lk.Public())
    print(lk.certify(n=50, alpha=plan.alpha, construction="minmax", base=lk.Public()))


if __name__ == "__main__":
    main()
