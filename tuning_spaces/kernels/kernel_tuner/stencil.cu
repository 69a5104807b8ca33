// One time step of the acoustic wave equation, eighth order in space (a star of 25 points).
//
// next = 2 u - previous + velocity * laplacian(u), velocity being (c dt / h)^2 at each point. The
// fields are float32, depth x height x width points inside a border of 4 points on every side, fewer
// than 2^31 in all. A block owns a rectangle of columns and walks along z over `planes` planes.
// Sizes are multiples of the block's: no bounds are checked. stencil.py documents the parameters,
// which Kernel Tuner defines as macros.

enum PlaneMemory { from_global, through_shared };
enum ColumnMemory { reloaded, in_registers };

constexpr int kRadius = 4;
constexpr int kThreads = block_size_x * block_size_y;
constexpr int kTileWidth = block_size_x * tile_x;
constexpr int kTileHeight = block_size_y * tile_y;
constexpr bool kStaged = plane_memory == through_shared;
constexpr bool kQueued = column_memory == in_registers;
constexpr int kPlanesHeld = kStaged ? shared_planes : 1;
constexpr int kSharedHeight = kStaged ? kTileHeight + 2 * kRadius : 1;
constexpr int kSharedWidth = kStaged ? kTileWidth + 2 * kRadius : 1;

// Central differences of eighth order: the centre for three axes together, then distances 1 to 4.
constexpr float kCentre = 3.0f * -205.0f / 72.0f;

__device__ __forceinline__ float weight(int distance) {
    return distance == 1 ? 8.0f / 5.0f
           : distance == 2 ? -1.0f / 5.0f
           : distance == 3 ? 8.0f / 315.0f
                           : -1.0f / 560.0f;
}

__device__ __forceinline__ float fetch(const float *at) { return read_only ? __ldg(at) : *at; }

extern "C" __global__ void __launch_bounds__(kThreads)
stencil(float *next, const float *u, const float *previous, const float *velocity, int width,
        int height, int depth) {
    __shared__ float plane[kPlanesHeld][kSharedHeight][kSharedWidth];
    const int pitch = width + 2 * kRadius;
    const int slice = pitch * (height + 2 * kRadius);
    const int left = blockIdx.x * kTileWidth, top = blockIdx.y * kTileHeight;
    const int first = blockIdx.z * planes;
    // The block's corner, border included, on its first plane.
    const int corner = (first + kRadius) * slice + top * pitch + left;

    int at[tile_y][tile_x];  // this thread's points on the plane at hand
    float queue[tile_y][tile_x][2 * kRadius + 1];
#pragma unroll
    for (int i = 0; i < tile_y; i++)
#pragma unroll
        for (int j = 0; j < tile_x; j++) {
            at[i][j] = corner + (kRadius + threadIdx.y + i * block_size_y) * pitch + kRadius +
                       threadIdx.x + j * block_size_x;
            if (kQueued)
#pragma unroll
                for (int q = 0; q < 2 * kRadius; q++)
                    queue[i][j][q + 1] = fetch(u + at[i][j] + (q - kRadius) * slice);
        }

    constexpr int kUnroll = unroll_z;
#pragma unroll kUnroll
    for (int z = 0; z < planes; z++) {
        const int held = z % kPlanesHeld;
        if (kStaged) {
            // With two planes in turn, the barrier below is also the one that frees the other.
            if (kPlanesHeld == 1 && z > 0) __syncthreads();
            for (int y = threadIdx.y; y < kSharedHeight; y += block_size_y)
                for (int x = threadIdx.x; x < kSharedWidth; x += block_size_x)
                    plane[held][y][x] = fetch(u + corner + z * slice + y * pitch + x);
            __syncthreads();
        }
#pragma unroll
        for (int i = 0; i < tile_y; i++)
#pragma unroll
            for (int j = 0; j < tile_x; j++) {
                const int here = at[i][j];
                if (kQueued) {
#pragma unroll
                    for (int q = 0; q < 2 * kRadius; q++) queue[i][j][q] = queue[i][j][q + 1];
                    queue[i][j][2 * kRadius] = fetch(u + here + kRadius * slice);
                }
                const int row = kRadius + threadIdx.y + i * block_size_y;
                const int column = kRadius + threadIdx.x + j * block_size_x;
                const float centre = kQueued   ? queue[i][j][kRadius]
                                     : kStaged ? plane[held][row][column]
                                               : fetch(u + here);
                float laplacian = kCentre * centre;
#pragma unroll
                for (int r = 1; r <= kRadius; r++) {
                    const float beside =
                        kStaged ? plane[held][row][column - r] + plane[held][row][column + r] +
                                      plane[held][row - r][column] + plane[held][row + r][column]
                                : fetch(u + here - r) + fetch(u + here + r) +
                                      fetch(u + here - r * pitch) + fetch(u + here + r * pitch);
                    const float along =
                        kQueued ? queue[i][j][kRadius - r] + queue[i][j][kRadius + r]
                                : fetch(u + here - r * slice) + fetch(u + here + r * slice);
                    laplacian += weight(r) * (beside + along);
                }
                next[here] =
                    2.0f * centre - fetch(previous + here) + fetch(velocity + here) * laplacian;
                at[i][j] += slice;
            }
    }
}
