"""Who meets whom: graphs as arrays of neighbours, from networkx or made here."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from rolecraft.errors import MissingDependencyError, UserError

if TYPE_CHECKING:
    Ints = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Graph:
    """An undirected graph without loops in which every node has a neighbour."""

    neighbours: Ints
    """Shape (nodes, largest degree): each node's neighbours, then its first neighbour again as padding."""
    degrees: Ints
    """Shape (nodes,): how many of them count."""

    @classmethod
    def of_edges(cls, nodes: int, edges: Iterable[tuple[int, int]]) -> Graph:
        """Make a graph of nodes 0 to `nodes` - 1.

        Raises:
            UserError: If there are fewer than two nodes, an edge leaves the range or is a loop, or a node has no edge.
        """
        if nodes < 2:
            raise UserError(f"nodes: a graph of agents needs at least 2, got {nodes}.")
        near: list[set[int]] = [set() for _ in range(nodes)]
        for a, b in edges:
            if a == b or not (0 <= a < nodes and 0 <= b < nodes):
                raise UserError(f"edge ({a}, {b}): expected two different nodes from 0 to {nodes - 1}.")
            near[a].add(b)
            near[b].add(a)
        if alone := [node for node, found in enumerate(near) if not found]:
            raise UserError(f"node {alone[0]} has no neighbour (of {len(alone)} such nodes); it could never play.")
        most = max(map(len, near))
        rows = [sorted(found) + [min(found)] * (most - len(found)) for found in near]
        return cls(np.array(rows, dtype=np.int64), np.array([len(found) for found in near], dtype=np.int64))

    @classmethod
    def of_networkx(cls, graph: Any) -> Graph:
        """Make one from an undirected networkx graph; nodes are numbered in its order."""
        number = {node: index for index, node in enumerate(graph.nodes)}
        return cls.of_edges(len(number), ((number[a], number[b]) for a, b in graph.edges))

    def __len__(self) -> int:
        return len(self.degrees)

    @property
    def edges(self) -> Ints:
        """Every edge in both directions, shape (2 * edges, 2)."""
        starts = np.repeat(np.arange(len(self)), self.degrees)
        ends = np.concatenate([row[:degree] for row, degree in zip(self.neighbours, self.degrees, strict=True)])
        return np.stack([starts, ends], axis=1)

    @property
    def adjacency(self) -> NDArray[np.bool_]:
        """Shape (nodes, nodes): whether two nodes are neighbours."""
        table = np.zeros((len(self), len(self)), dtype=bool)
        table[self.edges[:, 0], self.edges[:, 1]] = True
        return table


def complete_graph(nodes: int) -> Graph:
    """Return the graph in which everyone is everyone's neighbour."""
    return Graph.of_edges(nodes, ((a, b) for a in range(nodes) for b in range(a)))


def lattice(rows: int, columns: int) -> Graph:
    """Return a lattice on a torus: four neighbours each.

    Raises:
        UserError: If a side is below 3, where neighbours would coincide.
    """
    if min(rows, columns) < 3:
        raise UserError(f"a lattice on a torus needs sides of at least 3, got {rows} x {columns}.")
    numbers = np.arange(rows * columns).reshape(rows, columns)
    shifted = [np.roll(numbers, -1, axis) for axis in (0, 1)]
    edges = [(int(a), int(b)) for other in shifted for a, b in zip(numbers.flat, other.flat, strict=True)]
    return Graph.of_edges(rows * columns, edges)


def scale_free(nodes: int, attach: int = 2, seed: int = 0) -> Graph:
    """Return a graph grown by preferential attachment (Barabasi and Albert 1999).

    Args:
        nodes: How many.
        attach: Edges that a new node brings, 1 to `nodes` - 1.
        seed: Of the draws.

    Raises:
        UserError: If `attach` is out of range.
    """
    if not 1 <= attach < nodes:
        raise UserError(f"attach: expected 1 to nodes - 1 = {nodes - 1} edges per new node, got {attach}.")
    return Graph.of_networkx(_networkx().barabasi_albert_graph(nodes, attach, seed=seed))


def caveman(cliques: int, size: int) -> Graph:
    """Return connected caves: cliques on a ring, one edge of each moved to the next (Watts 1999).

    Raises:
        UserError: If there are fewer than two cliques or a clique has fewer than three nodes.
    """
    if cliques < 2 or size < 3:
        raise UserError(f"caves need at least 2 cliques of at least 3 nodes, got {cliques} of {size}.")
    return Graph.of_networkx(_networkx().connected_caveman_graph(cliques, size))


def _networkx() -> Any:
    try:
        import networkx
    except ImportError:
        raise MissingDependencyError("this graph needs networkx: pip install 'rolecraft[arrays]'.") from None
    return networkx
