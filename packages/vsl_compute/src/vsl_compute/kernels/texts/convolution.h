// Convolution as the product of two matrices of which the first, the windows of x, is never made (implicit GEMM):
//
//   WINDOWS  out[position, filter] = bias[filter] + sum over taps (p, q, c) of window[position, tap] * second[tap, filter]
//   TAPS     out[tap, filter]      = sum over positions of window[position, tap] * second[position, filter]
//
// where position is (n, i, j), window[position, tap] = x[n, c, i * STEP_H + first_row + p * DILATE_H, likewise the column], and 0 outside.
// WINDOWS is conv2d, and conv2d_input with turned weights; TAPS is conv2d_weight, `chunk` positions a group.
//
// This is the body of a kernel in what C and GLSL have in common; kernels/convolution.py says what each language adds. A group of COUNT
// threads keeps BK of the inner index of BM rows and BN columns in shared memory, a thread TM x TN results in registers; the next
// tile is fetched while this one is used. VECTOR_X says that four neighbouring channels are one load, UNIFORM that a tile of WINDOWS
// lies within one tap, and one of TAPS within one line of positions; VECTOR_B and WHOLE say that four columns are one load or store.

const uint t = LOCAL, tx = t % ACROSS, ty = t / ACROSS;
const uint row0 = GROUP_Y * BM, column0 = GROUP_X * BN;
#ifdef TAPS
const uint part = GROUP_Z / groups, group = GROUP_Z - part * groups;
const uint begin = part * chunk, end = min(depth, begin + chunk);
#else
const uint group = GROUP_Z, begin = 0u, end = depth;
#endif
const int x_group = INT(group * channels) * x_channel;
const uint b_group = group * columns + column0;

NUMBER4 sum[TM * TN / 4];
UNROLL for (uint i = 0u; i < TM * TN / 4u; ++i) sum[i] = SPLAT(0);
NUMBER next_a[4 * LA];
NUMBER4 next_b[LB];

// what a thread knows of the rows that it fetches: of WINDOWS where the window of a position lies, of TAPS where a tap looks
int at_row[INFOS], at_column[INFOS], at[INFOS];
UNROLL for (uint r = 0u; r < INFOS; ++r) {
#ifdef TAPS
    const uint m = row0 + (VECTOR_X != 0u ? ((r * COUNT + t) % (BM / 4u)) * 4u : (r * COUNT + t) % BM);
    const uint tap = divided(m, channels_magic, shifts & 31u), p = tap / TAPS_ACROSS, q = tap - p * TAPS_ACROSS;
    at_row[r] = first_row + INT(p) * DILATE_H;
    at_column[r] = first_column + INT(q) * DILATE_W;
    at[r] = x_group + INT(m - tap * channels) * x_channel;
#else
    const uint m = row0 + (VECTOR_X != 0u ? (r * COUNT + t) / (BK / 4u) : (r * COUNT + t) % BM);
    const uint n = divided(m, plane_magic, (shifts >> 10) & 31u), rest = m - n * plane;
    const uint i = divided(rest, width_magic, (shifts >> 5) & 31u), j = rest - i * width;
    at_row[r] = INT(i) * STEP_H + first_row;
    at_column[r] = INT(j) * STEP_W + first_column;
    at[r] = x_group + INT(n) * x_batch + at_row[r] * x_row + at_column[r] * x_column;
#endif
    if (m >= rows) at_row[r] = -0x40000000;  // outside of every image
}

for (uint k0 = begin; k0 < end + BK; k0 += BK) {
    if (k0 < end) {
        UNROLL for (uint l = 0u; l < (VECTOR_X != 0u ? LA : 4u * LA); ++l) {
            const uint e = l * COUNT + t;
#ifdef TAPS
            const uint kk = VECTOR_X != 0u ? e / (BM / 4u) : e / BM, info = l % INFOS;
            const uint k = k0 + kk, first = UNIFORM != 0u ? k0 : k;
            const uint n = divided(first, plane_magic, (shifts >> 10) & 31u), rest = first - n * plane;
            const uint i = divided(rest, width_magic, (shifts >> 5) & 31u);
            const uint j = rest - i * width + (UNIFORM != 0u ? kk : 0u);
            const int y = INT(i) * STEP_H + at_row[info], z = INT(j) * STEP_W + at_column[info];
            const int place = at[info] + INT(n) * x_batch + y * x_row + z * x_column;
#else
            const uint kk = VECTOR_X != 0u ? (e % (BK / 4u)) * 4u : e / BM, info = VECTOR_X != 0u ? l : l % INFOS;
            const uint k = k0 + kk;
            const uint tap = divided(UNIFORM != 0u ? k0 : k, channels_magic, shifts & 31u), p = tap / TAPS_ACROSS, q = tap - p * TAPS_ACROSS;
            const int down = INT(p) * DILATE_H, over = INT(q) * DILATE_W;
            const int y = at_row[info] + down, z = at_column[info] + over;
            const int place = at[info] + down * x_row + over * x_column + INT(k - tap * channels) * x_channel;
#endif
            const bool inside = UINT(y) < x_height && UINT(z) < x_width && k < end;
            if (VECTOR_X != 0u) {
                NUMBER4 v = SPLAT(0);
                if (inside) v = X4(place);
                next_a[4u * l] = v.x; next_a[4u * l + 1u] = v.y; next_a[4u * l + 2u] = v.z; next_a[4u * l + 3u] = v.w;
            } else {
                next_a[l] = ZERO;
                if (inside) next_a[l] = X(place);
            }
        }
        UNROLL for (uint l = 0u; l < LB; ++l) {
            const uint e = l * COUNT + t, k = k0 + e / (BN / 4u), j = (e % (BN / 4u)) * 4u;
            const int place = INT(k * b_row + b_group + j);
            const bool mine = 4u * LB * COUNT == BN * BK || e < BN / 4u * BK; // a narrow tile is less than one load a thread
            next_b[l] = SPLAT(0);
            if (mine && k < end) {
                if (VECTOR_B != 0u) {
                    if (column0 + j < columns) next_b[l] = B4(place);
                } else {
                    if (column0 + j < columns) next_b[l].x = B(place);
                    if (column0 + j + 1u < columns) next_b[l].y = B(place + 1);
                    if (column0 + j + 2u < columns) next_b[l].z = B(place + 2);
                    if (column0 + j + 3u < columns) next_b[l].w = B(place + 3);
                }
            }
        }
    }
    const uint half_used = DOUBLE != 0u ? (((k0 - begin) / BK) & 1u) : 0u, half_made = DOUBLE != 0u ? (1u - half_used) * BK : 0u;
    if (k0 > begin) {
        UNROLL for (uint kk = 0u; kk < BK; ++kk) {
            NUMBER fa[TM];
            NUMBER4 fb[TN / 4];
            UNROLL for (uint i = 0u; i < TM / 4u; ++i) {
                const NUMBER4 v = tile_a[(half_used * BK + kk) * PM + i * DOWN + ty];
                fa[4u * i] = v.x; fa[4u * i + 1u] = v.y; fa[4u * i + 2u] = v.z; fa[4u * i + 3u] = v.w;
            }
            UNROLL for (uint j = 0u; j < TN / 4u; ++j) fb[j] = tile_b[(half_used * BK + kk) * PN + j * ACROSS + tx];
            UNROLL for (uint i = 0u; i < TM; ++i)
                UNROLL for (uint j = 0u; j < TN / 4u; ++j) sum[i * (TN / 4u) + j] = ADDED(sum[i * (TN / 4u) + j], SPLAT(fa[i]), fb[j]);
        }
    }
    if (DOUBLE == 0u) BARRIER;
    if (k0 < end) {
        if (VECTOR_X != 0u) {
            UNROLL for (uint l = 0u; l < LA; ++l) {
                const uint e = l * COUNT + t;
#ifdef TAPS
                tile_a[(half_made + e / (BM / 4u)) * PM + e % (BM / 4u)] =
                    PACKED(next_a[4u * l], next_a[4u * l + 1u], next_a[4u * l + 2u], next_a[4u * l + 3u]);
#else
                const uint m = e / (BK / 4u), kk = (e % (BK / 4u)) * 4u;
                UNROLL for (uint c = 0u; c < 4u; ++c) PUT_A((half_made + kk + c) * PM, m, next_a[4u * l + c]);
#endif
            }
        } else {
            UNROLL for (uint l = 0u; l < 4u * LA; ++l) {
                const uint e = l * COUNT + t;
                PUT_A((half_made + e / BM) * PM, e % BM, next_a[l]);
            }
        }
        UNROLL for (uint l = 0u; l < LB; ++l) {
            const uint e = l * COUNT + t;
            const bool mine = 4u * LB * COUNT == BN * BK || e < BN / 4u * BK;
            if (mine) tile_b[(half_made + e / (BN / 4u)) * PN + e % (BN / 4u)] = next_b[l];
        }
    }
    BARRIER;
}

UNROLL for (uint i = 0u; i < TM; ++i) {
    const uint row = row0 + (i >> 2) * DOWN * 4u + ty * 4u + (i & 3u);
    if (row < rows) {
#ifdef TAPS
        const int line = INT((part * rows + row) * b_row + group * columns);
#else
        const uint n = divided(row, plane_magic, (shifts >> 10) & 31u), rest = row - n * plane;
        const uint y = divided(rest, width_magic, (shifts >> 5) & 31u), z = rest - y * width;
        const int line = INT(n * out_batch + y * out_row + z * out_column + group * columns);
#endif
        UNROLL for (uint j = 0u; j < TN / 4u; ++j) {
            const uint column = column0 + j * ACROSS * 4u + tx * 4u;
            const int place = line + INT(column);
            NUMBER4 v = sum[i * (TN / 4u) + j];
            if (WHOLE != 0u) {
                if (column < columns) {
                    if (BIAS != 0u) v += BIAS4(group * columns + column);
                    OUT4(place, v);
                }
            } else {
                if (BIAS != 0u) {
                    if (column < columns) v.x += BIAS1(group * columns + column);
                    if (column + 1u < columns) v.y += BIAS1(group * columns + column + 1u);
                    if (column + 2u < columns) v.z += BIAS1(group * columns + column + 2u);
                    if (column + 3u < columns) v.w += BIAS1(group * columns + column + 3u);
                }
                if (column < columns) OUT(place, v.x);
                if (column + 1u < columns) OUT(place + 1, v.y);
                if (column + 2u < columns) OUT(place + 2, v.z);
                if (column + 3u < columns) OUT(place + 3, v.w);
            }
        }
    }
}
