// Attention without its matrix of weights: a group keeps BM of its own rows in shared memory and lets the others pass, BN at a time.
//
//   FORWARD  own are queries a, others keys c and values d:  to = softmax(scale a c^T + mask) d, lse the logarithm of each row's sum
//   QUERIES  own are queries a and what their results receive b, others keys c and values d:  to = scale ds c
//   KEYS     own are keys a and values b, others queries c and what their results receive d:  to = scale ds c, more = p d
//
// where p = exp(score - lse) and ds = p (dp - delta), dp the products of b and d. A peak and a sum that follow the scores as they
// pass are those of Milakov & Gimelshein 2018; the ways back are those of Dao et al. 2022, one a pass over all keys or queries, so
// that nothing is added up by several groups. E and V are the sizes of heads, E4 and V4 the fours that they fill, PE, PV and PM
// lines of shared memory with one four more, so that rows begin in other banks. The body of a kernel in what C and GLSL have in
// common; kernels/attention.py says what each language adds.

#define FETCH(tile, count, first, limit, width, width4, line, whole, base, stride, ONE, FOUR)                 \
    for (uint e = t; e < count * width4; e += COUNT) {                                                        \
        const uint r = e / width4, x = 4u * (e - r * width4);                                                 \
        NUMBER4 v = SPLAT(ZERO);                                                                              \
        if (first + r < limit) {                                                                              \
            const int place = base + INT(first + r) * stride + INT(x);                                        \
            if (whole != 0u) {                                                                                \
                v = FOUR(place);                                                                              \
            } else {                                                                                          \
                v.x = ONE(place);                                                                             \
                if (x + 1u < width) v.y = ONE(place + 1);                                                     \
                if (x + 2u < width) v.z = ONE(place + 2);                                                     \
                if (x + 3u < width) v.w = ONE(place + 3);                                                     \
            }                                                                                                 \
        }                                                                                                     \
        tile[r * line + x / 4u] = v;                                                                          \
    }
#define DOT(s, a, b) ADDED(ADDED(ADDED(ADDED(s, a.x, b.x), a.y, b.y), a.z, b.z), a.w, b.w)
// a thread's rows come in fours, DOWN fours apart; its columns are ACROSS apart, of results in fours
#define ROW(i) (((i) >> 2) * DOWN * 4u + ty * 4u + ((i) & 3u))
#define COLUMN(j) ((j) * ACROSS + tx)
#define KEEP(place, x, width, whole, ONE, FOUR)                   \
    if (whole != 0u) {                                            \
        if (x < width) FOUR(place, v);                            \
    } else {                                                      \
        if (x < width) ONE(place, v.x);                           \
        if (x + 1u < width) ONE(place + 1, v.y);                  \
        if (x + 2u < width) ONE(place + 2, v.z);                  \
        if (x + 3u < width) ONE(place + 3, v.w);                  \
    }

const uint t = LOCAL, tx = t % ACROSS, ty = t / ACROSS;
const uint row0 = GROUP_X * BM, batch = GROUP_Y;
const int outer = INT(batch / inner), within = INT(batch % inner);
const int a_at = outer * a_outer + within * a_inner, c_at = outer * c_outer + within * c_inner;
const int d_at = outer * d_outer + within * d_inner, mask_at = outer * mask_outer + within * mask_inner;
const int to_at = outer * to_outer + within * to_inner;

FETCH(tile_a, BM, row0, rows, E, E4, PE, WHOLE_E, a_at, a_row, A, A4)
#ifndef FORWARD
const int b_at = outer * b_outer + within * b_inner;
FETCH(tile_b, BM, row0, rows, V, V4, PV, WHOLE_V, b_at, b_row, B, B4)
#else
for (uint m = t; m < BM; m += COUNT) {
    peak_of[m] = NONE;
    total_of[m] = ZERO;
}
#endif

#ifdef FORWARD
NUMBER4 sum[TM * JV];
UNROLL for (uint i = 0u; i < TM * JV; ++i) sum[i] = SPLAT(ZERO);
#else
NUMBER4 sum[TM * JE];
UNROLL for (uint i = 0u; i < TM * JE; ++i) sum[i] = SPLAT(ZERO);
#endif
#ifdef KEYS
NUMBER4 also[TM * JV];
UNROLL for (uint i = 0u; i < TM * JV; ++i) also[i] = SPLAT(ZERO);
#endif
#ifdef QUERIES
NUMBER lse_of[TM], delta_of[TM];
UNROLL for (uint i = 0u; i < TM; ++i) {
    const uint row = row0 + ROW(i);
    lse_of[i] = delta_of[i] = ZERO;
    if (row < rows) {
        const int place = INT(batch * rows + row);
        lse_of[i] = LSE(place);
        delta_of[i] = DELTA(place);
    }
}
#endif

// causality: query i sees keys 0 to i
#ifdef KEYS
const uint begin = CAUSAL != 0u ? row0 / BN * BN : 0u, end = columns;
#else
const uint begin = 0u, end = (CAUSAL != 0u && row0 + BM < columns) ? row0 + BM : columns;
#endif
for (uint first = begin; first < end; first += BN) {
    BARRIER;
    FETCH(tile_c, BN, first, columns, E, E4, PE, WHOLE_E, c_at, c_row, C, C4)
#ifndef FORWARD
    FETCH(tile_d, BN, first, columns, V, V4, PV, WHOLE_V, d_at, d_row, D, D4)
#endif
    BARRIER;
    NUMBER s[TM * TN];
    UNROLL for (uint i = 0u; i < TM * TN; ++i) s[i] = ZERO;
    for (uint x = 0u; x < E4; ++x) {
        NUMBER4 own[TM];
        UNROLL for (uint i = 0u; i < TM; ++i) own[i] = tile_a[ROW(i) * PE + x];
        UNROLL for (uint j = 0u; j < TN; ++j) {
            const NUMBER4 other = tile_c[COLUMN(j) * PE + x];
            UNROLL for (uint i = 0u; i < TM; ++i) s[i * TN + j] = DOT(s[i * TN + j], own[i], other);
        }
    }
#ifndef FORWARD
    NUMBER u[TM * TN];
    UNROLL for (uint i = 0u; i < TM * TN; ++i) u[i] = ZERO;
    for (uint x = 0u; x < V4; ++x) {
        NUMBER4 own[TM];
        UNROLL for (uint i = 0u; i < TM; ++i) own[i] = tile_b[ROW(i) * PV + x];
        UNROLL for (uint j = 0u; j < TN; ++j) {
            const NUMBER4 other = tile_d[COLUMN(j) * PV + x];
            UNROLL for (uint i = 0u; i < TM; ++i) u[i * TN + j] = DOT(u[i * TN + j], own[i], other);
        }
    }
#endif
    UNROLL for (uint j = 0u; j < TN; ++j) {
        const uint column = first + COLUMN(j);
#ifdef KEYS
        NUMBER lse = ZERO, delta = ZERO;
        if (column < columns) {
            const int place = INT(batch * columns + column);
            lse = LSE(place);
            delta = DELTA(place);
        }
#endif
        UNROLL for (uint i = 0u; i < TM; ++i) {
            const uint row = row0 + ROW(i);
#ifdef KEYS
            bool seen = row < rows && column < columns;
            if (CAUSAL != 0u && column < row) seen = false;
#else
            bool seen = row < rows && column < columns;
            if (CAUSAL != 0u && row < column) seen = false;
#endif
            NUMBER score = scale * s[i * TN + j];
            if (MASK != 0u && seen) {
                const int place = mask_at + INT(row) * mask_row + INT(column) * mask_column;
                if (MASK == 1u) seen = MASK_BOOL(place);
                else score += MASK_FLOAT(place);
            }
#ifdef FORWARD
            s[i * TN + j] = seen ? score : NONE;
#else
#ifdef QUERIES
            const NUMBER lse = lse_of[i], delta = delta_of[i];
#endif
            const NUMBER p = seen ? EXP(score - (lse == NONE ? ZERO : lse)) : ZERO;
            s[i * TN + j] = p;
            u[i * TN + j] = seen ? p * (u[i * TN + j] - delta) : ZERO;
#endif
        }
        UNROLL for (uint q = 0u; q < TM / 4u; ++q) {
            const uint k = 4u * q * TN + j, place = COLUMN(j) * PM + q * DOWN + ty;
#ifdef FORWARD
            tile_p[place] = PACKED(s[k], s[k + TN], s[k + 2u * TN], s[k + 3u * TN]);
#else
            tile_p[place] = PACKED(u[k], u[k + TN], u[k + 2u * TN], u[k + 3u * TN]);
#ifdef KEYS
            tile_q[place] = PACKED(s[k], s[k + TN], s[k + 2u * TN], s[k + 3u * TN]);
#endif
#endif
        }
    }
    BARRIER;
#ifdef FORWARD
    for (uint m = t; m < BM; m += COUNT) {
        const NUMBER before = peak_of[m];
        NUMBER peak = before;
        for (uint n = 0u; n < BN; ++n) {
            const NUMBER x = P(n, m);
            peak = (x > peak || x != x) ? x : peak;
        }
        const NUMBER shift = peak == NONE ? ZERO : peak;
        NUMBER total = ZERO;
        for (uint n = 0u; n < BN; ++n) {
            const NUMBER x = EXP(P(n, m) - shift);
            P(n, m) = x;
            total += x;
        }
        const NUMBER factor = EXP(before - shift);
        total_of[m] = ADDED(total, factor, total_of[m]);
        peak_of[m] = peak;
        factor_of[m] = factor;
    }
    FETCH(tile_c, BN, first, columns, V, V4, PV, WHOLE_V, d_at, d_row, D, D4)
    BARRIER;
    UNROLL for (uint i = 0u; i < TM; ++i) {
        const NUMBER factor = factor_of[ROW(i)];
        UNROLL for (uint j = 0u; j < JV; ++j) sum[i * JV + j] = ADDED(SPLAT(ZERO), SPLAT(factor), sum[i * JV + j]);
    }
#endif
    for (uint n = 0u; n < BN; ++n) {
        UNROLL for (uint q = 0u; q < TM / 4u; ++q) {
            const NUMBER4 p = tile_p[n * PM + q * DOWN + ty];
#ifdef FORWARD
            UNROLL for (uint j = 0u; j < JV; ++j) {
                const NUMBER4 d = tile_c[n * PV + (COLUMN(j) < V4 ? COLUMN(j) : V4 - 1u)];
                sum[4u * q * JV + j] = ADDED(sum[4u * q * JV + j], SPLAT(p.x), d);
                sum[(4u * q + 1u) * JV + j] = ADDED(sum[(4u * q + 1u) * JV + j], SPLAT(p.y), d);
                sum[(4u * q + 2u) * JV + j] = ADDED(sum[(4u * q + 2u) * JV + j], SPLAT(p.z), d);
                sum[(4u * q + 3u) * JV + j] = ADDED(sum[(4u * q + 3u) * JV + j], SPLAT(p.w), d);
            }
#else
            UNROLL for (uint j = 0u; j < JE; ++j) {
                const NUMBER4 c = tile_c[n * PE + (COLUMN(j) < E4 ? COLUMN(j) : E4 - 1u)];
                sum[4u * q * JE + j] = ADDED(sum[4u * q * JE + j], SPLAT(p.x), c);
                sum[(4u * q + 1u) * JE + j] = ADDED(sum[(4u * q + 1u) * JE + j], SPLAT(p.y), c);
                sum[(4u * q + 2u) * JE + j] = ADDED(sum[(4u * q + 2u) * JE + j], SPLAT(p.z), c);
                sum[(4u * q + 3u) * JE + j] = ADDED(sum[(4u * q + 3u) * JE + j], SPLAT(p.w), c);
            }
#ifdef KEYS
            const NUMBER4 w = tile_q[n * PM + q * DOWN + ty];
            UNROLL for (uint j = 0u; j < JV; ++j) {
                const NUMBER4 d = tile_d[n * PV + (COLUMN(j) < V4 ? COLUMN(j) : V4 - 1u)];
                also[4u * q * JV + j] = ADDED(also[4u * q * JV + j], SPLAT(w.x), d);
                also[(4u * q + 1u) * JV + j] = ADDED(also[(4u * q + 1u) * JV + j], SPLAT(w.y), d);
                also[(4u * q + 2u) * JV + j] = ADDED(also[(4u * q + 2u) * JV + j], SPLAT(w.z), d);
                also[(4u * q + 3u) * JV + j] = ADDED(also[(4u * q + 3u) * JV + j], SPLAT(w.w), d);
            }
#endif
#endif
        }
    }
}

BARRIER;
UNROLL for (uint i = 0u; i < TM; ++i) {
    const uint row = row0 + ROW(i);
    if (row < rows) {
#ifdef FORWARD
        const NUMBER total = total_of[ROW(i)], share = total == ZERO ? ZERO : 1 / total;
        UNROLL for (uint j = 0u; j < JV; ++j) {
            const uint x = 4u * COLUMN(j);
            const int place = to_at + INT(row) * to_row + INT(x);
            const NUMBER4 v = ADDED(SPLAT(ZERO), SPLAT(share), sum[i * JV + j]);
            KEEP(place, x, V, WHOLE_V, TO, TO4)
        }
        if (tx == 0u) {
            const NUMBER peak = peak_of[ROW(i)];
            PUT_LSE(INT(batch * rows + row), total == ZERO ? NONE : peak + LOG(total));
        }
#else
        UNROLL for (uint j = 0u; j < JE; ++j) {
            const uint x = 4u * COLUMN(j);
            const int place = to_at + INT(row) * to_row + INT(x);
            const NUMBER4 v = ADDED(SPLAT(ZERO), SPLAT(scale), sum[i * JE + j]);
            KEEP(place, x, E, WHOLE_E, TO, TO4)
        }
#ifdef KEYS
        const int more_at = outer * more_outer + within * more_inner;
        UNROLL for (uint j = 0u; j < JV; ++j) {
            const uint x = 4u * COLUMN(j);
            const int place = more_at + INT(row) * more_row + INT(x);
            const NUMBER4 v = also[i * JV + j];
            KEEP(place, x, V, WHOLE_V, MORE, MORE4)
        }
#endif
#endif
    }
}
