// Gravitational acceleration of each of `count` bodies by all of them, softened, in float32.
//
// accelerations[axis][i] = sum over j of mass_j * d / (distance^2 + softening)^1.5, where d is the
// axis of position_j - position_i. The bodies come twice: `structures` holds x, y, z and mass of
// one body after another, `arrays` all x, then all y, z and masses. A thread computes
// bodies_per_thread bodies that lie a block's width apart. Blocks along y take one of `split` parts
// of the sources each and add up atomically, so that accelerations must be 0 before; within a
// block, block_size_y groups of threads share the sources of a tile. Sizes are multiples of what a
// block takes: no bounds are checked. nbody.py documents the parameters, which Kernel Tuner defines
// as macros.

enum SourceMemory { from_global, read_only, through_shared };
enum Layout { structure_by_structure, arrays_one_by_one, arrays_by_four };
enum Inverse { reciprocal_root, root_and_division };

constexpr int kThreads = block_size_x * block_size_y;
constexpr int kBodies = block_size_x * bodies_per_thread;
constexpr int kTile = tile;
constexpr int kShare = kTile / block_size_y;
constexpr bool kStaged = source_memory == through_shared;
constexpr bool kStructures = layout == structure_by_structure;
constexpr int kStep = layout == arrays_by_four ? 4 : 1;  // sources that are read at a time

union Lanes {
    float4 packed;
    float lane[4];
};

template <typename T> __device__ __forceinline__ T fetch(const T *at) {
    return source_memory == read_only ? __ldg(at) : *at;
}

// A tile of sources to shared memory, in the layout of global memory.
__device__ __forceinline__ void stage(
    float *held, const float *structures, const float *arrays, int first, int count, int thread) {
    if (kStructures) {
        for (int i = thread; i < kTile; i += kThreads)
            reinterpret_cast<float4 *>(held)[i] =
                reinterpret_cast<const float4 *>(structures)[first + i];
    } else {
        constexpr int kVectors = kTile / kStep;
        for (int i = thread; i < 4 * kVectors; i += kThreads) {
            const int field = i / kVectors, at = i % kVectors * kStep;
            const float *from = arrays + field * count + first + at;
            if (kStep == 4)
                reinterpret_cast<float4 *>(held)[i] = *reinterpret_cast<const float4 *>(from);
            else
                held[i] = *from;
        }
    }
}

// Sources j to j + kStep - 1 from shared memory or, fields lying `pitch` apart, from global memory.
__device__ __forceinline__ void read(
    float4 (&sources)[kStep], const float *from, int pitch, int j) {
    if (kStructures) {
        const float4 *at = reinterpret_cast<const float4 *>(from) + j;
        sources[0] = kStaged ? *at : fetch(at);
    } else if (kStep == 1) {
        from += j;
        sources[0].x = kStaged ? *from : fetch(from);
        sources[0].y = kStaged ? from[pitch] : fetch(from + pitch);
        sources[0].z = kStaged ? from[2 * pitch] : fetch(from + 2 * pitch);
        sources[0].w = kStaged ? from[3 * pitch] : fetch(from + 3 * pitch);
    } else {
        Lanes fields[4];
#pragma unroll
        for (int field = 0; field < 4; field++) {
            const float4 *at = reinterpret_cast<const float4 *>(from + field * pitch + j);
            fields[field].packed = kStaged ? *at : fetch(at);
        }
#pragma unroll
        for (int s = 0; s < kStep; s++) {
            sources[s].x = fields[0].lane[s];
            sources[s].y = fields[1].lane[s];
            sources[s].z = fields[2].lane[s];
            sources[s].w = fields[3].lane[s];
        }
    }
}

extern "C" __global__ void __launch_bounds__(kThreads)
nbody(float *accelerations, const float *structures, const float *arrays, float softening,
      int count) {
    __shared__ __align__(16) float held[kStaged ? 4 * kTile : 4];
    __shared__ float partial[3][block_size_y][block_size_x];
    const int x = threadIdx.x, y = threadIdx.y;
    const int thread = y * block_size_x + x;
    const int body = blockIdx.x * kBodies + x;
    const int part = count / split;

    float position[bodies_per_thread][3];
    float sums[bodies_per_thread][3] = {};
#pragma unroll
    for (int b = 0; b < bodies_per_thread; b++)
#pragma unroll
        for (int axis = 0; axis < 3; axis++)
            position[b][axis] = arrays[axis * count + body + b * block_size_x];

    for (int step = 0; step < part; step += kTile) {
        const int first = blockIdx.y * part + step;
        if (kStaged) {
            stage(held, structures, arrays, first, count, thread);
            __syncthreads();
        }
        const float *from =
            kStaged ? held : kStructures ? structures + first * 4 : arrays + first;
        constexpr int kUnroll = unroll_sources / kStep;
#pragma unroll kUnroll
        for (int j = 0; j < kShare; j += kStep) {
            float4 sources[kStep];
            read(sources, from, kStaged ? kTile : count, y * kShare + j);
#pragma unroll
            for (int s = 0; s < kStep; s++)
#pragma unroll
                for (int b = 0; b < bodies_per_thread; b++) {
                    const float dx = sources[s].x - position[b][0];
                    const float dy = sources[s].y - position[b][1];
                    const float dz = sources[s].z - position[b][2];
                    const float squared = dx * dx + dy * dy + dz * dz + softening;
                    const float inverse_distance =
                        inverse == reciprocal_root ? rsqrtf(squared) : 1.0f / sqrtf(squared);
                    const float weight = sources[s].w * inverse_distance * inverse_distance *
                                         inverse_distance;
                    sums[b][0] += weight * dx;
                    sums[b][1] += weight * dy;
                    sums[b][2] += weight * dz;
                }
        }
        if (kStaged) __syncthreads();
    }
#pragma unroll
    for (int b = 0; b < bodies_per_thread; b++) {
        if (block_size_y > 1) {
            if (b > 0) __syncthreads();
#pragma unroll
            for (int axis = 0; axis < 3; axis++) partial[axis][y][x] = sums[b][axis];
            __syncthreads();
        }
        if (y > 0) continue;
#pragma unroll
        for (int axis = 0; axis < 3; axis++) {
            float sum = sums[b][axis];
#pragma unroll
            for (int group = 1; group < block_size_y; group++) sum += partial[axis][group][x];
            float *at = accelerations + axis * count + body + b * block_size_x;
            if (split == 1)
                *at = sum;
            else
                atomicAdd(at, sum);
        }
    }
}
