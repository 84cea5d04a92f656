"""Byte offsets of the argument words of the fast kernels of experts; the first ones as the mat-vecs
have them (fast_matvec.py), Y_OFF's place holding the number of experts where there is no offset."""

from __future__ import annotations

X, W, STEP, COLS, Y, ROWS, EXPERTS, G, EPS, SCRATCH, SCRATCH_BYTES = range(0, 88, 8)
FIRST, ROUTE, ROUTE_ROW = range(88, 112, 8)
Y_OFF = EXPERTS
X_STRIDE, Y_STRIDE = G, EPS
START, ROW0, GROUPS = range(96, 120, 8)

SWIGLU = "x w step cols y rows experts g eps scratch scratch_bytes first route route.row"
DOWN = SWIGLU.replace("g eps scratch scratch_bytes", "rows rows rows rows")  # no norm
MATMUL = (
    "x w step cols y rows y_off x_stride y_stride scratch scratch_bytes first start row0 groups"
)
