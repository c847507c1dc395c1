GIVEN(uint, rows)    // own: of a group, BM at a time
GIVEN(uint, columns) // others, BN at a time
GIVEN(uint, inner)   // batches come as (outer, inner)
GIVEN(float, scale)
GIVEN(int, a_outer) GIVEN(int, a_inner) GIVEN(int, a_row) // strides
GIVEN(int, b_outer) GIVEN(int, b_inner) GIVEN(int, b_row)
GIVEN(int, c_outer) GIVEN(int, c_inner) GIVEN(int, c_row)
GIVEN(int, d_outer) GIVEN(int, d_inner) GIVEN(int, d_row)
GIVEN(int, mask_outer) GIVEN(int, mask_inner) GIVEN(int, mask_row) GIVEN(int, mask_column)
GIVEN(int, to_outer) GIVEN(int, to_inner) GIVEN(int, to_row)
GIVEN(int, more_outer) GIVEN(int, more_inner) GIVEN(int, more_row)
