// Squared Euclidean distances between all pairs of two sets of points, in float32.
//
// distances[r][c] = sum over the axes of (row_points[r] - column_points[c])^2; points come one
// after another, with `dimensions` coordinates each. A block computes a tile of
// block_size_y * tile_y rows and block_size_x * tile_x columns, walking along the axes in steps of
// `slab` through shared memory. Sizes are multiples of what a block takes (no bounds are checked),
// and there are fewer than 2^31 distances. distance_matrix.py documents the parameters, which
// Kernel Tuner defines as macros.

enum Staging { turned, turned_padded, as_is };
enum RowMemory { from_global, through_shared };
enum Form { by_differences, by_products };
enum Store { floats, vectors, streaming_vectors };

constexpr int kThreads = block_size_x * block_size_y;
constexpr int kStep = 4;  // axes that are read at a time
constexpr bool kTurned = staging != as_is;
constexpr bool kRowsStaged = row_memory == through_shared;

template <int width> struct Vector;
template <> struct Vector<1> { typedef float type; };
template <> struct Vector<2> { typedef float2 type; };
template <> struct Vector<4> { typedef float4 type; };

template <int width> union Lanes {
    typename Vector<width>::type packed;
    float lane[width];
};

template <int width> __device__ __forceinline__ Lanes<width> fetch(const float *at) {
    Lanes<width> values;
    values.packed = *reinterpret_cast<const typename Vector<width>::type *>(at);
    return values;
}

// The points of a block's rows or columns: `each` for every thread along `threads`, in runs of
// `run` side by side; from one run to the next it is a run of all threads.
template <int threads, int each, int run> struct Side {
    static constexpr int kPoints = threads * each;
    // Between axes, or as they are between points: there, vectors of points in a row lie in
    // different banks only with the padding.
    static constexpr int kPitch =
        kTurned ? kPoints + (staging == turned_padded ? 4 : 0) : slab + 4;
    static constexpr int kFloats = (kTurned ? slab : kPoints) * kPitch;

    static __device__ __forceinline__ int point(int thread, int i) {
        return (thread + i / run * threads) * run + i % run;
    }

    // Some axes of all points to shared memory.
    static __device__ __forceinline__ void stage(
        float *held, const float *points, int dimensions, int thread) {
        constexpr int kVectors = kPoints * slab / kStep / kThreads;
#pragma unroll
        for (int i = 0; i < kVectors; i++) {
            const int at = (thread + i * kThreads) * kStep;
            const int point = at / slab, axis = at % slab;
            const Lanes<kStep> values = fetch<kStep>(points + point * dimensions + axis);
            if (kTurned) {
#pragma unroll
                for (int s = 0; s < kStep; s++)
                    held[(axis + s) * kPitch + point] = values.lane[s];
            } else {
                *reinterpret_cast<float4 *>(held + point * kPitch + axis) = values.packed;
            }
        }
    }

    // The next axes of a thread's points, one point's after the other's, `pitch` apart.
    static __device__ __forceinline__ void read_points(
        float (&values)[each][kStep], const float *from, int pitch, int thread) {
#pragma unroll
        for (int i = 0; i < each; i++) {
            const Lanes<kStep> axes = fetch<kStep>(from + point(thread, i) * pitch);
#pragma unroll
            for (int s = 0; s < kStep; s++) values[i][s] = axes.lane[s];
        }
    }

    // The same from shared memory.
    static __device__ __forceinline__ void read(
        float (&values)[each][kStep], const float *held, int axis, int thread) {
        if (kTurned) {
#pragma unroll
            for (int s = 0; s < kStep; s++)
#pragma unroll
                for (int i = 0; i < each; i += run) {
                    const Lanes<run> points =
                        fetch<run>(held + (axis + s) * kPitch + point(thread, i));
#pragma unroll
                    for (int v = 0; v < run; v++) values[i + v][s] = points.lane[v];
                }
        } else {
            read_points(values, held + axis, kPitch, thread);
        }
    }
};

constexpr int kRowRun = !kTurned ? 1 : tile_y < 4 ? tile_y : 4;
constexpr int kColumnRun = store == floats ? 1 : 4;
typedef Side<block_size_y, tile_y, kRowRun> Rows;
typedef Side<block_size_x, tile_x, kColumnRun> Columns;

__device__ __forceinline__ void put(float *to, const Lanes<kColumnRun> &values) {
    typedef Vector<kColumnRun>::type Packed;
    if (store == streaming_vectors)
        __stcs(reinterpret_cast<Packed *>(to), values.packed);
    else
        *reinterpret_cast<Packed *>(to) = values.packed;
}

extern "C" __global__ void __launch_bounds__(kThreads)
distance_matrix(float *distances, const float *row_points, const float *column_points,
                int column_count, int dimensions) {
    __shared__ __align__(16) float held_rows[kRowsStaged ? Rows::kFloats : 4];
    __shared__ __align__(16) float held_columns[Columns::kFloats];
    const int x = threadIdx.x, y = threadIdx.y;
    const int thread = y * block_size_x + x;
    const int top = blockIdx.y * Rows::kPoints, left = blockIdx.x * Columns::kPoints;
    row_points += top * dimensions;
    column_points += left * dimensions;

    float sums[tile_y][tile_x] = {};  // of squared differences, or of products
    float row_squares[tile_y] = {}, column_squares[tile_x] = {};
#pragma unroll 1
    for (int first = 0; first < dimensions; first += slab) {
        if (first > 0) __syncthreads();  // the last slab has been read
        if (kRowsStaged) Rows::stage(held_rows, row_points + first, dimensions, thread);
        Columns::stage(held_columns, column_points + first, dimensions, thread);
        __syncthreads();
        constexpr int kUnroll = unroll_axes / kStep;
#pragma unroll kUnroll
        for (int axis = 0; axis < slab; axis += kStep) {
            float rows[tile_y][kStep], columns[tile_x][kStep];
            if (kRowsStaged)
                Rows::read(rows, held_rows, axis, y);
            else
                Rows::read_points(rows, row_points + first + axis, dimensions, y);
            Columns::read(columns, held_columns, axis, x);
#pragma unroll
            for (int s = 0; s < kStep; s++) {
                if (form == by_products) {
#pragma unroll
                    for (int i = 0; i < tile_y; i++) row_squares[i] += rows[i][s] * rows[i][s];
#pragma unroll
                    for (int j = 0; j < tile_x; j++)
                        column_squares[j] += columns[j][s] * columns[j][s];
                }
#pragma unroll
                for (int i = 0; i < tile_y; i++)
#pragma unroll
                    for (int j = 0; j < tile_x; j++) {
                        const float apart = rows[i][s] - columns[j][s];
                        sums[i][j] +=
                            form == by_products ? rows[i][s] * columns[j][s] : apart * apart;
                    }
            }
        }
    }
#pragma unroll
    for (int i = 0; i < tile_y; i++) {
        float *row = distances + (top + Rows::point(y, i)) * column_count + left;
#pragma unroll
        for (int j = 0; j < tile_x; j += kColumnRun) {
            Lanes<kColumnRun> values;
#pragma unroll
            for (int v = 0; v < kColumnRun; v++)
                values.lane[v] =
                    form == by_products
                        ? row_squares[i] + column_squares[j + v] - 2.0f * sums[i][j + v]
                        : sums[i][j + v];
            put(row + Columns::point(x, j), values);
        }
    }
}
