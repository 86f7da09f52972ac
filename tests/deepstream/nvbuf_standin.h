/* SPDX-License-Identifier: Apache-2.0
 *
 * NvBufSurface as the public header lays it out. */
#ifndef NVBUF_STANDIN_H
#define NVBUF_STANDIN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define STRUCTURE_PADDING 4
#define NVBUF_MAX_PLANES 4

typedef enum
{
  NVBUF_COLOR_FORMAT_INVALID = 0,
  NVBUF_COLOR_FORMAT_GRAY8 = 1,
  NVBUF_COLOR_FORMAT_YUV420 = 2,
  NVBUF_COLOR_FORMAT_NV12 = 6,
  NVBUF_COLOR_FORMAT_NV12_ER = 7,
  NVBUF_COLOR_FORMAT_RGBA = 19,
  NVBUF_COLOR_FORMAT_BGRx = 24,
  NVBUF_COLOR_FORMAT_RGB = 27,
  NVBUF_COLOR_FORMAT_BGR = 28,
  NVBUF_COLOR_FORMAT_NV12_709 = 33,
  NVBUF_COLOR_FORMAT_NV12_709_ER = 34
} NvBufSurfaceColorFormat;

typedef enum
{
  NVBUF_MEM_DEFAULT,
  NVBUF_MEM_CUDA_PINNED,
  NVBUF_MEM_CUDA_DEVICE,
  NVBUF_MEM_CUDA_UNIFIED,
  NVBUF_MEM_SURFACE_ARRAY,
  NVBUF_MEM_HANDLE,
  NVBUF_MEM_SYSTEM,
  NVBUF_MEM_CUDA_ARRAY
} NvBufSurfaceMemType;

typedef enum { NVBUF_LAYOUT_PITCH, NVBUF_LAYOUT_BLOCK_LINEAR } NvBufSurfaceLayout;
typedef enum { NVBUF_MAP_READ, NVBUF_MAP_WRITE, NVBUF_MAP_READ_WRITE } NvBufSurfaceMemMapFlags;

typedef struct
{
  uint32_t num_planes;
  uint32_t width[NVBUF_MAX_PLANES];
  uint32_t height[NVBUF_MAX_PLANES];
  uint32_t pitch[NVBUF_MAX_PLANES];
  uint32_t offset[NVBUF_MAX_PLANES];
  uint32_t psize[NVBUF_MAX_PLANES];
  uint32_t bytesPerPix[NVBUF_MAX_PLANES];
  void *_reserved[STRUCTURE_PADDING * NVBUF_MAX_PLANES];
} NvBufSurfacePlaneParams;

typedef struct
{
  uint32_t gpuId, width, height, size;
  bool isContiguous;
  NvBufSurfaceColorFormat colorFormat;
  NvBufSurfaceLayout layout;
  NvBufSurfaceMemType memType;
  void *_reserved[STRUCTURE_PADDING];
} NvBufSurfaceCreateParams;

typedef struct
{
  void *addr[NVBUF_MAX_PLANES];
  void *eglImage, *nvmmPtr, *cudaPtr;
  void *_reserved[STRUCTURE_PADDING];
} NvBufSurfaceMappedAddr;

typedef struct
{
  uint32_t width, height, pitch;
  NvBufSurfaceColorFormat colorFormat;
  NvBufSurfaceLayout layout;
  uint64_t bufferDesc;
  uint32_t dataSize;
  void *dataPtr;
  NvBufSurfacePlaneParams planeParams;
  NvBufSurfaceMappedAddr mappedAddr;
  void *paramex, *cudaBuffer;
  void *_reserved[STRUCTURE_PADDING];
} NvBufSurfaceParams;

typedef struct
{
  uint32_t gpuId, batchSize, numFilled;
  bool isContiguous;
  NvBufSurfaceMemType memType;
  NvBufSurfaceParams *surfaceList;
  bool isImportedBuf;
  void *_reserved[STRUCTURE_PADDING];
} NvBufSurface;

_Static_assert (sizeof (NvBufSurface) == 72, "NvBufSurface");
_Static_assert (sizeof (NvBufSurfaceParams) == 416, "NvBufSurfaceParams");
_Static_assert (sizeof (NvBufSurfacePlaneParams) == 232, "NvBufSurfacePlaneParams");
_Static_assert (offsetof (NvBufSurface, memType) == 16, "memType");
_Static_assert (offsetof (NvBufSurface, surfaceList) == 24, "surfaceList");
_Static_assert (offsetof (NvBufSurfaceParams, pitch) == 8, "pitch");
_Static_assert (offsetof (NvBufSurfaceParams, colorFormat) == 12, "colorFormat");
_Static_assert (offsetof (NvBufSurfaceParams, dataPtr) == 40, "dataPtr");
_Static_assert (offsetof (NvBufSurfaceParams, planeParams) == 48, "planeParams");
_Static_assert (offsetof (NvBufSurfaceParams, mappedAddr) == 280, "mappedAddr");

int NvBufSurfaceCreate (NvBufSurface ** surf, uint32_t batch_size, NvBufSurfaceCreateParams * params);
int NvBufSurfaceDestroy (NvBufSurface * surf);
int NvBufSurfaceMap (NvBufSurface * surf, int index, int plane, NvBufSurfaceMemMapFlags type);
int NvBufSurfaceUnMap (NvBufSurface * surf, int index, int plane);
int NvBufSurfaceSyncForCpu (NvBufSurface * surf, int index, int plane);
int NvBufSurfaceSyncForDevice (NvBufSurface * surf, int index, int plane);
int NvBufSurfaceMemSet (NvBufSurface * surf, int index, int plane, uint8_t value);
int NvBufSurfaceMapEglImage (NvBufSurface * surf, int index);
int NvBufSurfaceUnMapEglImage (NvBufSurface * surf, int index);

/* Beyond the public functions */
#define NVBUF_STANDIN_PITCH 512
NvBufSurface *nvbuf_standin_alloc (uint32_t batch_size, NvBufSurfaceMemType type, uint32_t gpu);
int nvbuf_standin_alloc_frame (NvBufSurface * surf, uint32_t index, uint32_t width, uint32_t height,
    NvBufSurfaceColorFormat format);
/* The host bytes behind a frame, also where dataPtr is none of the CPU's business; NULL if none */
uint8_t *nvbuf_standin_host (const NvBufSurface * surf, uint32_t index);
uint64_t nvbuf_standin_mapped (void);   /* planes mapped and not unmapped, in the whole process */

#endif
