"""The iteration orders of Java's hash and tree sets, which are visible in `describe()`.

Kafka Streams keeps names in `HashSet`s and nodes in `TreeSet`s whose comparator reads sizes that change while the sets are
filled. The text of a description therefore depends on `String.hashCode`, on bucket counts and on the paths of red-black
insertion. These classes reproduce exactly that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Generic, TypeVar

T = TypeVar("T")


def string_hash(text: str) -> int:
    """Return Java's `String.hashCode` of `text` as an unsigned 32-bit number."""
    value = 0
    units = text.encode("utf-16-be", "surrogatepass")
    for i in range(0, len(units), 2):
        value = (31 * value + (units[i] << 8 | units[i + 1])) & 0xFFFFFFFF
    return value


def hash_set_order(names: Iterable[str], *, sized: int | None = None) -> list[str]:
    """Return the distinct names in the iteration order of a `java.util.HashSet` filled in the given order.

    Args:
        sized: capacity argument of ``new HashSet<>(sized)``, which decides the number of buckets; None: the default constructor.
    """
    distinct = list(dict.fromkeys(names))
    capacity = 16 if sized is None else 1 << max(0, sized - 1).bit_length()
    while len(distinct) > capacity * 3 / 4:
        capacity *= 2

    def bucket(name: str) -> int:
        value = string_hash(name)
        return (value ^ (value >> 16)) & (capacity - 1)

    return sorted(distinct, key=bucket)  # stable: entries of one bucket keep their insertion order


class _TreeNode(Generic[T]):
    __slots__ = ("value", "left", "right", "parent", "red")

    def __init__(self, value: T, parent: _TreeNode[T] | None) -> None:
        self.value = value
        self.left: _TreeNode[T] | None = None
        self.right: _TreeNode[T] | None = None
        self.parent = parent
        self.red = True


class TreeSet(Generic[T]):
    """Insertion-only `java.util.TreeSet`: the comparator is called only at insertion.

    Args:
        compare: returns a negative, zero or positive number, as Java's comparators do.
    """

    def __init__(self, compare: Callable[[T, T], int]) -> None:
        self._compare = compare
        self._root: _TreeNode[T] | None = None

    def add(self, value: T) -> None:
        parent, here, order = None, self._root, 0
        while here is not None:
            order = self._compare(value, here.value)
            if order == 0:
                return
            parent, here = here, here.left if order < 0 else here.right
        node = _TreeNode(value, parent)
        if parent is None:
            self._root = node
        elif order < 0:
            parent.left = node
        else:
            parent.right = node
        self._balance(node)

    def _balance(self, node: _TreeNode[T]) -> None:
        while node.parent is not None and node.parent.red:
            parent = node.parent
            grand = parent.parent
            assert grand is not None  # a red node is never the root
            on_left = parent is grand.left
            uncle = grand.right if on_left else grand.left
            if uncle is not None and uncle.red:
                parent.red = uncle.red = False
                grand.red = True
                node = grand
                continue
            if node is (parent.right if on_left else parent.left):
                node = parent
                self._rotate(node, left=on_left)
                assert node.parent is not None
                parent = node.parent
            parent.red = False
            grand.red = True
            self._rotate(grand, left=not on_left)
        assert self._root is not None
        self._root.red = False

    def _rotate(self, node: _TreeNode[T], *, left: bool) -> None:
        up = node.right if left else node.left
        assert up is not None
        inner = up.left if left else up.right
        if left:
            node.right = inner
            up.left = node
        else:
            node.left = inner
            up.right = node
        if inner is not None:
            inner.parent = node
        up.parent = node.parent
        if node.parent is None:
            self._root = up
        elif node is node.parent.left:
            node.parent.left = up
        else:
            node.parent.right = up
        node.parent = up

    def __iter__(self) -> Iterator[T]:
        stack: list[_TreeNode[T]] = []
        here = self._root
        while stack or here is not None:
            while here is not None:
                stack.append(here)
                here = here.left
            here = stack.pop()
            yield here.value
            here = here.right
