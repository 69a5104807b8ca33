#define grid_size_x 64
#define grid_size_y 1
#define grid_size_z 1
#define block_size_x 256
#define block_size_y 1
#define block_size_z 1
#define width 1
#define depth 2
#define kernel_tuner 1
#line 1

#include <signal.h>
#include <unistd.h>
extern "C" float scaled(float *out, float *a, int n) {
#if width == 3
    #error "the width must be a power of two"
#endif
    if (width == 5) raise(SIGTRAP);
    if (width == 6) sleep(60);
    for (int i = 0; i < n; i++) out[i] = 2 * a[i] + (depth == 3);
    return 1.0f + 0.5f * (width != 4) + 0.25f * (depth != 2) + 0.01f * width;
}
