/* SPDX-License-Identifier: Apache-2.0
 *
 * Surfaces in host memory, pitch-linear, each plane's rows padded to 512 bytes and the padding filled
 * with a mark. A DEVICE surface's dataPtr is an unreadable address: reading it on the CPU faults, as
 * on a GPU. A SURFACE_ARRAY surface has no dataPtr and must be mapped. */
#define _DEFAULT_SOURCE
#include "nvbuf_standin.h"
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define PADDING_MARK 0xCD

typedef struct
{
  NvBufSurface surf;
  uint32_t allocated;
  uint8_t **host;
} Surface;

static uint64_t mapped;

static uint32_t
pitch_of (uint32_t bytes)
{
  return (bytes + NVBUF_STANDIN_PITCH - 1) / NVBUF_STANDIN_PITCH * NVBUF_STANDIN_PITCH;
}

static int
fill_planes (NvBufSurfacePlaneParams * p, uint32_t width, uint32_t height,
    NvBufSurfaceColorFormat format)
{
  uint32_t bytes[3] = { 1, 2, 0 }, planes = 1, half = 0, size = 0;
  switch (format) {
    case NVBUF_COLOR_FORMAT_GRAY8:
      break;
    case NVBUF_COLOR_FORMAT_NV12:
    case NVBUF_COLOR_FORMAT_NV12_ER:
    case NVBUF_COLOR_FORMAT_NV12_709:
    case NVBUF_COLOR_FORMAT_NV12_709_ER:
      planes = 2, half = 1;
      break;
    case NVBUF_COLOR_FORMAT_YUV420:
      planes = 3, half = 1, bytes[1] = bytes[2] = 1;
      break;
    case NVBUF_COLOR_FORMAT_RGB:
    case NVBUF_COLOR_FORMAT_BGR:
      bytes[0] = 3;
      break;
    case NVBUF_COLOR_FORMAT_RGBA:
    case NVBUF_COLOR_FORMAT_BGRx:
      bytes[0] = 4;
      break;
    default:
      return -1;
  }
  p->num_planes = planes;
  for (uint32_t i = 0; i < planes; i++) {
    p->width[i] = i && half ? (width + 1) / 2 : width;
    p->height[i] = i && half ? (height + 1) / 2 : height;
    p->bytesPerPix[i] = bytes[i];
    p->pitch[i] = pitch_of (p->width[i] * bytes[i]);
    p->offset[i] = size;
    p->psize[i] = p->pitch[i] * p->height[i];
    size += p->psize[i];
  }
  return (int) size;
}

NvBufSurface *
nvbuf_standin_alloc (uint32_t batch_size, NvBufSurfaceMemType type, uint32_t gpu)
{
  Surface *self = calloc (1, sizeof *self);
  self->surf.gpuId = gpu;
  self->surf.batchSize = batch_size;
  self->surf.memType = type == NVBUF_MEM_DEFAULT ? NVBUF_MEM_SYSTEM : type;
  self->surf.surfaceList = calloc (batch_size ? batch_size : 1, sizeof (NvBufSurfaceParams));
  self->host = calloc (batch_size ? batch_size : 1, sizeof *self->host);
  self->allocated = batch_size;
  return &self->surf;
}

int
nvbuf_standin_alloc_frame (NvBufSurface * surf, uint32_t index, uint32_t width, uint32_t height,
    NvBufSurfaceColorFormat format)
{
  Surface *self = (Surface *) surf;
  NvBufSurfaceParams *frame;
  int size;
  if (index >= self->allocated)
    return -1;
  frame = &surf->surfaceList[index];
  size = fill_planes (&frame->planeParams, width, height, format);
  if (size < 0)
    return -1;
  frame->width = width;
  frame->height = height;
  frame->pitch = frame->planeParams.pitch[0];
  frame->colorFormat = format;
  frame->layout = NVBUF_LAYOUT_PITCH;
  frame->dataSize = (uint32_t) size;
  if (surf->memType == NVBUF_MEM_CUDA_DEVICE) {
    frame->dataPtr = mmap (NULL, frame->dataSize, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return frame->dataPtr == MAP_FAILED ? -1 : 0;
  }
  self->host[index] = malloc (frame->dataSize);
  memset (self->host[index], PADDING_MARK, frame->dataSize);
  if (surf->memType == NVBUF_MEM_SURFACE_ARRAY || surf->memType == NVBUF_MEM_HANDLE)
    frame->bufferDesc = 1000 + index;
  else
    frame->dataPtr = self->host[index];
  return 0;
}

uint8_t *
nvbuf_standin_host (const NvBufSurface * surf, uint32_t index)
{
  const Surface *self = (const Surface *) surf;
  return index < self->allocated ? self->host[index] : NULL;
}

uint64_t
nvbuf_standin_mapped (void)
{
  return __atomic_load_n (&mapped, __ATOMIC_RELAXED);
}

int
NvBufSurfaceCreate (NvBufSurface ** surf, uint32_t batch_size, NvBufSurfaceCreateParams * params)
{
  *surf = nvbuf_standin_alloc (batch_size, params->memType, params->gpuId);
  for (uint32_t i = 0; i < batch_size; i++)
    if (nvbuf_standin_alloc_frame (*surf, i, params->width, params->height, params->colorFormat)) {
      NvBufSurfaceDestroy (*surf);
      *surf = NULL;
      return -1;
    }
  return 0;
}

int
NvBufSurfaceDestroy (NvBufSurface * surf)
{
  Surface *self = (Surface *) surf;
  if (!surf)
    return -1;
  for (uint32_t i = 0; i < self->allocated; i++) {
    NvBufSurfaceParams *frame = &surf->surfaceList[i];
    if (surf->memType == NVBUF_MEM_CUDA_DEVICE && frame->dataPtr)
      munmap (frame->dataPtr, frame->dataSize);
    free (self->host[i]);
  }
  free (self->host);
  free (surf->surfaceList);
  free (self);
  return 0;
}

/* What: 1 map, 0 check that it is mapped, -1 unmap */
static int
each_plane (NvBufSurface * surf, int index, int plane, int what)
{
  Surface *self = (Surface *) surf;
  if (!surf || surf->memType == NVBUF_MEM_CUDA_DEVICE || index >= (int) self->allocated)
    return -1;
  for (int i = index < 0 ? 0 : index; i < (index < 0 ? (int) self->allocated : index + 1); i++) {
    NvBufSurfaceParams *frame = &surf->surfaceList[i];
    int planes = (int) frame->planeParams.num_planes;
    if (plane >= planes || !self->host[i])
      return -1;
    for (int p = plane < 0 ? 0 : plane; p < (plane < 0 ? planes : plane + 1); p++) {
      void **addr = &frame->mappedAddr.addr[p];
      if (what != 1 && !*addr)
        return -1;
      if (what == 1 && !*addr) {
        *addr = self->host[i] + frame->planeParams.offset[p];
        __atomic_add_fetch (&mapped, 1, __ATOMIC_RELAXED);
      } else if (what == -1) {
        *addr = NULL;
        __atomic_sub_fetch (&mapped, 1, __ATOMIC_RELAXED);
      }
    }
  }
  return 0;
}

int
NvBufSurfaceMap (NvBufSurface * surf, int index, int plane, NvBufSurfaceMemMapFlags type)
{
  (void) type;
  return each_plane (surf, index, plane, 1);
}

int
NvBufSurfaceUnMap (NvBufSurface * surf, int index, int plane)
{
  return each_plane (surf, index, plane, -1);
}

int
NvBufSurfaceSyncForCpu (NvBufSurface * surf, int index, int plane)
{
  return each_plane (surf, index, plane, 0);
}

int
NvBufSurfaceSyncForDevice (NvBufSurface * surf, int index, int plane)
{
  return each_plane (surf, index, plane, 0);
}

int
NvBufSurfaceMemSet (NvBufSurface * surf, int index, int plane, uint8_t value)
{
  Surface *self = (Surface *) surf;
  NvBufSurfacePlaneParams *p;
  if (!surf || index < 0 || index >= (int) self->allocated || !self->host[index])
    return -1;
  p = &surf->surfaceList[index].planeParams;
  if (plane < 0 || plane >= (int) p->num_planes)
    return -1;
  memset (self->host[index] + p->offset[plane], value, p->psize[plane]);
  return 0;
}

/* There is no EGL on the machines that build this. */
int
NvBufSurfaceMapEglImage (NvBufSurface * surf, int index)
{
  (void) surf;
  (void) index;
  return -1;
}

int
NvBufSurfaceUnMapEglImage (NvBufSurface * surf, int index)
{
  (void) surf;
  (void) index;
  return -1;
}
