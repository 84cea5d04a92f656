/* The runtime layer: makes Kompute 0.9.0 correct, quick and safe to use (docs/runtime-layer.md).
 *
 * One shared object with two faces. The Vulkan loader sees an explicit layer: calls of Kompute
 * pass through the `layer_…` functions below on their way to the driver. Python sees the module
 * `kompute_llm._layer`, which passes hints to the next call and reads errors and figures back.
 *
 * State: one `struct device` per VkDevice, found by the loader's dispatch pointer, which every
 * dispatchable handle of a device begins with. `lock` guards all tables; it is never held while
 * the driver runs. Hints belong to the calling thread, for Kompute calls Vulkan on that thread.
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <dlfcn.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>
#include <vulkan/vk_layer.h>
#include <vulkan/vulkan_core.h>

/* Headers before 1.3.255 do not know VK_KHR_cooperative_matrix; layout from the specification. */
#ifndef VK_KHR_cooperative_matrix
#define VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_COOPERATIVE_MATRIX_FEATURES_KHR 1000506000
#define VK_STRUCTURE_TYPE_COOPERATIVE_MATRIX_PROPERTIES_KHR 1000506001
typedef struct {
    VkStructureType sType;
    void *pNext;
    VkBool32 cooperativeMatrix, cooperativeMatrixRobustBufferAccess;
} VkPhysicalDeviceCooperativeMatrixFeaturesKHR;
typedef struct {
    VkStructureType sType;
    void *pNext;
    uint32_t MSize, NSize, KSize;
    int32_t AType, BType, CType, ResultType;
    VkBool32 saturatingAccumulation;
    int32_t scope;
} VkCooperativeMatrixPropertiesKHR;
typedef VkResult(VKAPI_PTR *PFN_vkGetPhysicalDeviceCooperativeMatrixPropertiesKHR)(
    VkPhysicalDevice, uint32_t *, VkCooperativeMatrixPropertiesKHR *);
#endif

/* Headers from 1.4 on no longer define it. */
#ifndef VK_LAYER_EXPORT
#define VK_LAYER_EXPORT __attribute__((visibility("default")))
#endif

#define HANDLE(x) ((uint64_t)(uintptr_t)(x))
#define KEY(x) (*(void **)(x)) /* the loader's dispatch pointer */
#define MESSAGES 1000          /* validation messages kept */
#define FENCES 64              /* fences kept for reuse, per device */
#define BUCKETS 1024
#define DEFAULT_SPIN_US 2000

/* ---- What is known of instances and devices ------------------------------------------------ */

#define INSTANCE_FUNCTIONS(X)                                                                     \
    X(DestroyInstance) X(CreateDevice) X(EnumerateDeviceExtensionProperties)                      \
    X(GetPhysicalDeviceProperties) X(GetPhysicalDeviceMemoryProperties)                           \
    X(GetPhysicalDeviceProperties2) X(GetPhysicalDeviceFeatures2)                                 \
    X(GetPhysicalDeviceMemoryProperties2) X(GetPhysicalDeviceQueueFamilyProperties)               \
    X(EnumeratePhysicalDevices)

/* Device functions that pass through this layer … */
#define HOOKED_FUNCTIONS(X)                                                                       \
    X(DestroyDevice) X(CreateBuffer) X(DestroyBuffer) X(GetBufferMemoryRequirements)              \
    X(BindBufferMemory) X(AllocateMemory) X(FreeMemory) X(MapMemory) X(UnmapMemory)               \
    X(FlushMappedMemoryRanges) X(CreateShaderModule) X(CreatePipelineCache)                       \
    X(DestroyPipelineCache) X(CreateComputePipelines) X(DestroyPipeline)                          \
    X(CreateDescriptorPool) X(AllocateDescriptorSets) X(UpdateDescriptorSets)                     \
    X(CreateDescriptorSetLayout) X(CreatePipelineLayout) X(CreateQueryPool) X(DestroyQueryPool)   \
    X(GetQueryPoolResults) X(CreateFence) X(DestroyFence) X(WaitForFences) X(QueueSubmit)         \
    X(AllocateCommandBuffers) X(FreeCommandBuffers) X(BeginCommandBuffer) X(EndCommandBuffer)     \
    X(CmdBindPipeline) X(CmdBindDescriptorSets) X(CmdPushConstants) X(CmdPipelineBarrier)         \
    X(CmdDispatch) X(CmdCopyBuffer) X(CmdWriteTimestamp)

/* … and those that it calls itself. */
#define USED_FUNCTIONS(X)                                                                         \
    X(CmdResetQueryPool) X(GetFenceStatus) X(ResetFences) X(MergePipelineCaches)                  \
    X(GetPipelineCacheData)

#define MEMBER(name) PFN_vk##name name;

struct instance {
    struct instance *next_instance;
    void *key;
    VkInstance handle;
    PFN_vkGetInstanceProcAddr get;
    VkDebugReportCallbackEXT messages;
    INSTANCE_FUNCTIONS(MEMBER)
};

/* Every feature that a shader may use is enabled when the device has it. A feature is offered
 * through the core version or through the extension; structures of both have the same layout. */
#define FEATURES(X)                                                                               \
    X(storage16, 16BitStorageFeatures, 16BIT_STORAGE_FEATURES, "VK_KHR_16bit_storage", 1)         \
    X(storage8, 8BitStorageFeatures, 8BIT_STORAGE_FEATURES, "VK_KHR_8bit_storage", 2)             \
    X(small, ShaderFloat16Int8Features, SHADER_FLOAT16_INT8_FEATURES,                             \
      "VK_KHR_shader_float16_int8", 2)                                                            \
    X(model, VulkanMemoryModelFeatures, VULKAN_MEMORY_MODEL_FEATURES,                             \
      "VK_KHR_vulkan_memory_model", 2)                                                            \
    X(subgroups, ShaderSubgroupExtendedTypesFeatures, SHADER_SUBGROUP_EXTENDED_TYPES_FEATURES,    \
      "VK_KHR_shader_subgroup_extended_types", 2)                                                 \
    X(control, SubgroupSizeControlFeatures, SUBGROUP_SIZE_CONTROL_FEATURES,                       \
      "VK_EXT_subgroup_size_control", 3)                                                          \
    X(dot, ShaderIntegerDotProductFeatures, SHADER_INTEGER_DOT_PRODUCT_FEATURES,                  \
      "VK_KHR_shader_integer_dot_product", 3)                                                     \
    X(maintenance4, Maintenance4Features, MAINTENANCE_4_FEATURES, "VK_KHR_maintenance4", 3)       \
    X(matrix, CooperativeMatrixFeaturesKHR, COOPERATIVE_MATRIX_FEATURES_KHR,                      \
      "VK_KHR_cooperative_matrix", 9)                                                             \
    X(priority, MemoryPriorityFeaturesEXT, MEMORY_PRIORITY_FEATURES_EXT,                          \
      "VK_EXT_memory_priority", 9)

struct features {
    VkPhysicalDeviceFeatures2 core;
#define FEATURE_MEMBER(name, type, stype, ext, minor) VkPhysicalDevice##type name;
    FEATURES(FEATURE_MEMBER)
    bool budget; /* VK_EXT_memory_budget */
    uint32_t extension_count;
    const char *extensions[16];
};

enum kind { MEMORY, BUFFER, PIPELINE, QUERIES, COMMANDS };

/* What the layer remembers of one Vulkan object. A dummy stands for an object that the driver
 * refused: Kompute ignores the result and goes on with the handle, so it gets one that is safe. */
struct object {
    struct object *next;
    enum kind kind;
    uint64_t handle;
    bool dummy;
    VkDeviceSize size;         /* MEMORY, BUFFER: bytes */
    uint32_t heap;             /* MEMORY */
    void *mapping;             /* MEMORY: what a mapped dummy hands out */
    uint32_t count;            /* QUERIES */
    bool runnable, open, used; /* COMMANDS: pipeline bound; last was a dispatch; not empty */
};

struct device {
    struct device *next_device;
    void *key;
    VkDevice handle;
    VkPhysicalDevice physical;
    struct instance *instance;
    unsigned id;
    VkPhysicalDeviceProperties properties;
    VkPhysicalDeviceMemoryProperties memory;
    struct features features;
    VkPipelineCache cache;
    struct object *objects[BUCKETS];
    VkFence fences[FENCES], used_fences[FENCES], signaled; /* kept ones: reset, not yet reset */
    uint32_t fence_count, used_fence_count;
    VkFence left[FENCES], left_last; /* of submits that a caller waits for later (leave_wait) */
    uint32_t left_count;
    bool leave;
    int64_t spin_ns;
    bool lost;
    const char *error_where; /* first error since it was last taken; NULL = none */
    VkResult error_result;
    VkDeviceSize error_size;
    VkDeviceSize used[VK_MAX_MEMORY_HEAPS];
    unsigned long long allocations, submits, fences_made, dispatches, barriers, dropped;
    PFN_vkGetDeviceProcAddr get;
    HOOKED_FUNCTIONS(MEMBER)
    USED_FUNCTIONS(MEMBER)
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct instance *instances;
static struct device *devices;
static unsigned device_serial;
static struct {
    uint32_t minor;
    bool plain;
} pretended = {.minor = 0x3FF}; /* for tests: at most Vulkan 1.minor, no extensions */
static bool validate; /* new instances get synchronization validation and a message collector */
static char *messages[MESSAGES];
static unsigned message_count;

/* Hints of this thread: consumed by the next matching call. */
static _Thread_local struct {
    bool dispatch, independent, copy;
    bool host, readable; /* buffers are for the CPU; so was the last one created */
    uint32_t grid[3];
    uint32_t subgroup_size;
    uint64_t source, target;
    VkBufferCopy region;
    uint32_t type_bits; /* of the last vkGetBufferMemoryRequirements */
    uint64_t created[8];
    unsigned created_count, device_id;
} hint;

/* Faults that tests ask for: the nth call at `where` from now on fails with `result`. */
static struct fault {
    char where[32];
    long countdown;
    VkResult result;
} faults[8];

static struct device *find_device(const void *handle)
{
    pthread_mutex_lock(&lock);
    struct device *d = devices;
    while (d && d->key != KEY(handle)) d = d->next_device;
    pthread_mutex_unlock(&lock);
    return d;
}

static struct instance *find_instance(const void *handle)
{
    pthread_mutex_lock(&lock);
    struct instance *i = instances;
    while (i && i->key != KEY(handle)) i = i->next_instance;
    pthread_mutex_unlock(&lock);
    return i;
}

static struct object **slot(struct device *d, enum kind kind, uint64_t handle)
{
    uint64_t hash = (handle ^ kind) * 0x9E3779B97F4A7C15u;
    struct object **o = &d->objects[(hash >> 32) % BUCKETS];
    while (*o && ((*o)->kind != kind || (*o)->handle != handle)) o = &(*o)->next;
    return o;
}

static struct object *find(struct device *d, enum kind kind, uint64_t handle)
{
    pthread_mutex_lock(&lock);
    struct object *o = *slot(d, kind, handle);
    pthread_mutex_unlock(&lock);
    return o;
}

/* Remember an object; handle 0 makes a dummy, whose handle is its own address. */
static struct object *add(struct device *d, enum kind kind, uint64_t handle)
{
    struct object *o = calloc(1, sizeof *o);
    if (!o) abort(); /* 100 bytes: nothing useful can run any more */
    o->kind = kind;
    o->dummy = handle == 0;
    o->handle = handle ? handle : HANDLE(o);
    pthread_mutex_lock(&lock);
    struct object **s = slot(d, kind, o->handle);
    while (*s) s = &(*s)->next;
    *s = o;
    pthread_mutex_unlock(&lock);
    return o;
}

/* Take an object out of the table; the caller frees it. */
static struct object *take(struct device *d, enum kind kind, uint64_t handle)
{
    pthread_mutex_lock(&lock);
    struct object **s = slot(d, kind, handle), *o = *s;
    if (o) *s = o->next;
    pthread_mutex_unlock(&lock);
    return o;
}

static bool is_dummy(struct device *d, enum kind kind, uint64_t handle)
{
    struct object *o = find(d, kind, handle);
    return o && o->dummy;
}

/* Keep the first error until Python takes it. */
static void remember(struct device *d, const char *where, VkResult result, VkDeviceSize size)
{
    pthread_mutex_lock(&lock);
    if (result == VK_ERROR_DEVICE_LOST) d->lost = true;
    if (!d->error_where) {
        d->error_where = where;
        d->error_result = result;
        d->error_size = size;
    }
    pthread_mutex_unlock(&lock);
}

static VkResult injected(const char *where)
{
    VkResult result = VK_SUCCESS;
    pthread_mutex_lock(&lock);
    for (unsigned i = 0; i < sizeof faults / sizeof *faults; i++)
        if (faults[i].countdown > 0 && !strcmp(faults[i].where, where) && !--faults[i].countdown)
            result = faults[i].result;
    pthread_mutex_unlock(&lock);
    return result;
}

/* Let other Python threads run while the driver works. Kompute holds the GIL all the time. */
static PyThreadState *release_gil(void)
{
    return Py_IsInitialized() && PyGILState_Check() ? PyEval_SaveThread() : NULL;
}

static void regain_gil(PyThreadState *state)
{
    if (state) PyEval_RestoreThread(state);
}

static int64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * INT64_C(1000000000) + t.tv_nsec;
}

/* ---- Instances and devices ----------------------------------------------------------------- */

static VKAPI_ATTR VkBool32 VKAPI_CALL on_message(VkDebugReportFlagsEXT flags,
                                                 VkDebugReportObjectTypeEXT type, uint64_t object,
                                                 size_t location, int32_t code, const char *prefix,
                                                 const char *message, void *user)
{
    (void)flags, (void)type, (void)object, (void)location, (void)code, (void)prefix, (void)user;
    pthread_mutex_lock(&lock);
    if (message_count < MESSAGES && (messages[message_count] = strdup(message))) message_count++;
    pthread_mutex_unlock(&lock);
    return VK_FALSE;
}

static const VkDebugReportCallbackCreateInfoEXT collector = {
    .sType = VK_STRUCTURE_TYPE_DEBUG_REPORT_CALLBACK_CREATE_INFO_EXT,
    .flags = VK_DEBUG_REPORT_ERROR_BIT_EXT | VK_DEBUG_REPORT_WARNING_BIT_EXT,
    .pfnCallback = on_message,
};

static void *link_info(const void *chain, VkStructureType type)
{
    VkLayerInstanceCreateInfo *link = (VkLayerInstanceCreateInfo *)chain;
    while (link && !(link->sType == type && link->function == VK_LAYER_LINK_INFO))
        link = (VkLayerInstanceCreateInfo *)link->pNext;
    return link;
}

static const VkValidationFeatureEnableEXT synchronization =
    VK_VALIDATION_FEATURE_ENABLE_SYNCHRONIZATION_VALIDATION_EXT;

static void load_instance(struct instance *i, VkInstance handle, PFN_vkGetInstanceProcAddr get)
{
    i->handle = handle;
    i->get = get;
#define LOAD_INSTANCE(name) i->name = (PFN_vk##name)get(handle, "vk" #name);
    INSTANCE_FUNCTIONS(LOAD_INSTANCE)
}

static void add_instance(VkInstance handle, PFN_vkGetInstanceProcAddr get)
{
    struct instance *i = calloc(1, sizeof *i);
    if (!i) abort();
    load_instance(i, handle, get);
    i->key = KEY(handle);
    PFN_vkCreateDebugReportCallbackEXT report =
        (PFN_vkCreateDebugReportCallbackEXT)get(handle, "vkCreateDebugReportCallbackEXT");
    if (validate && report) report(handle, &collector, NULL, &i->messages);
    pthread_mutex_lock(&lock);
    i->next_instance = instances;
    instances = i;
    pthread_mutex_unlock(&lock);
}

static VKAPI_ATTR VkResult VKAPI_CALL layer_CreateInstance(const VkInstanceCreateInfo *info,
                                                           const VkAllocationCallbacks *alloc,
                                                           VkInstance *out)
{
    VkLayerInstanceCreateInfo *link =
        link_info(info->pNext, VK_STRUCTURE_TYPE_LOADER_INSTANCE_CREATE_INFO);
    if (!link) return VK_ERROR_INITIALIZATION_FAILED;
    PFN_vkGetInstanceProcAddr get = link->u.pLayerInfo->pfnNextGetInstanceProcAddr;
    PFN_vkCreateInstance create = (PFN_vkCreateInstance)get(NULL, "vkCreateInstance");
    link->u.pLayerInfo = link->u.pLayerInfo->pNext;

    /* Kompute asks for 1.1, which forbids SPIR-V 1.5. Drivers accept versions above their own. */
    VkApplicationInfo app = {.sType = VK_STRUCTURE_TYPE_APPLICATION_INFO};
    if (info->pApplicationInfo) app = *info->pApplicationInfo;
    if (app.apiVersion < VK_API_VERSION_1_3) app.apiVersion = VK_API_VERSION_1_3;
    VkInstanceCreateInfo changed = *info;
    changed.pApplicationInfo = &app;

    VkValidationFeaturesEXT checks = {
        .sType = VK_STRUCTURE_TYPE_VALIDATION_FEATURES_EXT, .pNext = info->pNext,
        .enabledValidationFeatureCount = 1, .pEnabledValidationFeatures = &synchronization};
    VkDebugReportCallbackCreateInfoEXT during = collector; /* messages of vkCreateInstance itself */
    during.pNext = &checks;
    if (validate) changed.pNext = &during;

    VkResult result = create(&changed, alloc, out);
    if (result == VK_SUCCESS) add_instance(*out, get);
    return result;
}

static VKAPI_ATTR void VKAPI_CALL layer_DestroyInstance(VkInstance instance,
                                                        const VkAllocationCallbacks *alloc)
{
    struct instance *i = instance ? find_instance(instance) : NULL;
    if (!i) return;
    PFN_vkDestroyDebugReportCallbackEXT unreport =
        (PFN_vkDestroyDebugReportCallbackEXT)i->get(instance, "vkDestroyDebugReportCallbackEXT");
    if (i->messages && unreport) unreport(instance, i->messages, NULL);
    pthread_mutex_lock(&lock);
    struct instance **p = &instances;
    while (*p != i) p = &(*p)->next_instance;
    *p = i->next_instance;
    pthread_mutex_unlock(&lock);
    i->DestroyInstance(instance, alloc);
    free(i);
}

/* Version and extensions of a device; tests pretend that there is less of both. */
struct offer {
    uint32_t api, count;
    VkExtensionProperties *list; /* to be freed */
};

static struct offer device_offer(struct instance *i, VkPhysicalDevice physical)
{
    VkPhysicalDeviceProperties properties;
    i->GetPhysicalDeviceProperties(physical, &properties);
    struct offer o = {.api = properties.apiVersion};
    if (o.api > VK_MAKE_API_VERSION(0, 1, pretended.minor, 0xFFF))
        o.api = VK_MAKE_API_VERSION(0, 1, pretended.minor, 0);
    i->EnumerateDeviceExtensionProperties(physical, NULL, &o.count, NULL);
    o.list = calloc(o.count + 1, sizeof *o.list);
    if (!o.list || i->EnumerateDeviceExtensionProperties(physical, NULL, &o.count, o.list))
        o.count = 0;
    if (pretended.plain) o.count = 0;
    return o;
}

static bool offers(const struct offer *o, const char *extension)
{
    for (uint32_t e = 0; e < o->count; e++)
        if (!strcmp(o->list[e].extensionName, extension)) return true;
    return false;
}

/* Fill `f` with the features that `physical` has, chained for vkCreateDevice. */
static void query_features(struct instance *i, VkPhysicalDevice physical, struct features *f)
{
    memset(f, 0, sizeof *f);
    f->core.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_FEATURES_2;
    struct offer o = device_offer(i, physical);
    void **tail = &f->core.pNext;
    bool core;
#define QUERY_FEATURE(name, type, stype, ext, minor)                                              \
    f->name.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_##stype;                                    \
    core = o.api >= VK_MAKE_API_VERSION(0, 1, minor, 0);                                          \
    if (core || offers(&o, ext)) {                                                                \
        *tail = &f->name;                                                                         \
        tail = &f->name.pNext;                                                                    \
        if (!core) f->extensions[f->extension_count++] = ext;                                     \
    }
    FEATURES(QUERY_FEATURE)
    f->budget = offers(&o, "VK_EXT_memory_budget");
    if (f->budget) f->extensions[f->extension_count++] = "VK_EXT_memory_budget";
    free(o.list);
    if (o.api >= VK_API_VERSION_1_1) i->GetPhysicalDeviceFeatures2(physical, &f->core);

    /* Of the core features only the integer types: bounds checks, above all, cost time. */
    VkPhysicalDeviceFeatures all = f->core.features;
    memset(&f->core.features, 0, sizeof all);
    f->core.features.shaderInt16 = all.shaderInt16;
    f->core.features.shaderInt64 = all.shaderInt64;
    f->matrix.cooperativeMatrixRobustBufferAccess = VK_FALSE;
}

/* Kompute's request for a device with all features and their extensions added. `out` has to be
 * the loader's own: it looks around there. */
static VkResult create_device(struct device *d, const VkDeviceCreateInfo *info,
                              const VkAllocationCallbacks *alloc, PFN_vkCreateDevice create,
                              VkDevice *out)
{
    struct features *f = &d->features;
    VkDeviceCreateInfo changed = *info;
    const char *names[32];
    uint32_t count = 0;
    for (; count < info->enabledExtensionCount && count < 16; count++)
        names[count] = info->ppEnabledExtensionNames[count];
    for (uint32_t e = 0; e < f->extension_count; e++) names[count++] = f->extensions[e];
    changed.enabledExtensionCount = count;
    changed.ppEnabledExtensionNames = names;
    changed.pEnabledFeatures = NULL;
    VkBaseOutStructure *last = (VkBaseOutStructure *)&f->core;
    while (last->pNext) last = last->pNext;
    last->pNext = (VkBaseOutStructure *)info->pNext;
    changed.pNext = &f->core;
    VkResult result = create(d->physical, &changed, alloc, out);
    last->pNext = NULL;
    d->handle = *out;
    return result;
}

static void add_device(struct device *d, PFN_vkGetDeviceProcAddr get)
{
    d->key = KEY(d->handle);
    d->get = get;
#define LOAD_DEVICE(name) d->name = (PFN_vk##name)get(d->handle, "vk" #name);
    HOOKED_FUNCTIONS(LOAD_DEVICE)
    USED_FUNCTIONS(LOAD_DEVICE)
    d->instance->GetPhysicalDeviceProperties(d->physical, &d->properties);
    d->instance->GetPhysicalDeviceMemoryProperties(d->physical, &d->memory);
    bool software = d->properties.deviceType == VK_PHYSICAL_DEVICE_TYPE_CPU;
    d->spin_ns = software ? 0 : DEFAULT_SPIN_US * INT64_C(1000); /* its threads need our core */
    VkPipelineCacheCreateInfo empty = {.sType = VK_STRUCTURE_TYPE_PIPELINE_CACHE_CREATE_INFO};
    if (d->CreatePipelineCache(d->handle, &empty, NULL, &d->cache)) d->cache = VK_NULL_HANDLE;
    pthread_mutex_lock(&lock);
    hint.device_id = d->id = ++device_serial;
    d->next_device = devices;
    devices = d;
    pthread_mutex_unlock(&lock);
}

static VKAPI_ATTR VkResult VKAPI_CALL layer_CreateDevice(VkPhysicalDevice physical,
                                                         const VkDeviceCreateInfo *info,
                                                         const VkAllocationCallbacks *alloc,
                                                         VkDevice *out)
{
    struct instance *i = find_instance(physical);
    VkLayerDeviceCreateInfo *link =
        link_info(info->pNext, VK_STRUCTURE_TYPE_LOADER_DEVICE_CREATE_INFO);
    if (!i || !link) return VK_ERROR_INITIALIZATION_FAILED;
    PFN_vkGetInstanceProcAddr get = link->u.pLayerInfo->pfnNextGetInstanceProcAddr;
    PFN_vkGetDeviceProcAddr get_device = link->u.pLayerInfo->pfnNextGetDeviceProcAddr;
    link->u.pLayerInfo = link->u.pLayerInfo->pNext;
    struct device *d = calloc(1, sizeof *d);
    if (!d) abort();
    d->physical = physical;
    d->instance = i;
    query_features(i, physical, &d->features);
    PFN_vkCreateDevice create = (PFN_vkCreateDevice)get(i->handle, "vkCreateDevice");
    VkResult result = create_device(d, info, alloc, create, out);
    if (result == VK_SUCCESS)
        add_device(d, get_device);
    else
        free(d);
    return result;
}

static VKAPI_ATTR void VKAPI_CALL layer_DestroyDevice(VkDevice device,
                                                      const VkAllocationCallbacks *alloc)
{
    struct device *d = device ? find_device(device) : NULL;
    if (!d) return;
    for (uint32_t f = 0; f < d->fence_count; f++) d->DestroyFence(device, d->fences[f], NULL);
    for (uint32_t f = 0; f < d->used_fence_count; f++)
        d->DestroyFence(device, d->used_fences[f], NULL);
    for (uint32_t f = 0; f < d->left_count; f++) d->DestroyFence(device, d->left[f], NULL);
    d->DestroyPipelineCache(device, d->cache, NULL);
    pthread_mutex_lock(&lock);
    struct device **p = &devices;
    while (*p != d) p = &(*p)->next_device;
    *p = d->next_device;
    pthread_mutex_unlock(&lock);
    d->DestroyDevice(device, alloc);
    for (unsigned b = 0; b < BUCKETS; b++)
        for (struct object *o = d->objects[b], *next; o; o = next) {
            next = o->next;
            if (o->mapping) munmap(o->mapping, o->size);
            free(o);
        }
    free(d);
}

/* ---- Memory -------------------------------------------------------------------------------- */

static VKAPI_ATTR VkResult VKAPI_CALL layer_CreateBuffer(VkDevice device,
                                                         const VkBufferCreateInfo *info,
                                                         const VkAllocationCallbacks *alloc,
                                                         VkBuffer *out)
{
    struct device *d = find_device(device);
    VkBufferCreateInfo changed = *info;
    /* Kompute's `storage` tensors can neither be filled nor read by copies otherwise. */
    changed.usage |= VK_BUFFER_USAGE_TRANSFER_SRC_BIT | VK_BUFFER_USAGE_TRANSFER_DST_BIT;
    /* Kompute allocates right after; its staging buffers alone are no storage buffers. */
    hint.readable = hint.host || !(info->usage & VK_BUFFER_USAGE_STORAGE_BUFFER_BIT);
    VkResult result = injected("buffer");
    if (result == VK_SUCCESS) result = d->CreateBuffer(device, &changed, alloc, out);
    if (result != VK_SUCCESS) {
        remember(d, "vkCreateBuffer", result, info->size);
        struct object *o = add(d, BUFFER, 0);
        o->size = info->size;
        *out = (VkBuffer)o->handle;
    }
    unsigned kept = sizeof hint.created / sizeof *hint.created;
    if (hint.created_count < kept) hint.created[hint.created_count++] = HANDLE(*out);
    return VK_SUCCESS;
}

static VKAPI_ATTR void VKAPI_CALL layer_DestroyBuffer(VkDevice device, VkBuffer buffer,
                                                      const VkAllocationCallbacks *alloc)
{
    struct device *d = find_device(device);
    struct object *dummy = take(d, BUFFER, HANDLE(buffer));
    if (!dummy) d->DestroyBuffer(device, buffer, alloc);
    free(dummy);
}

static VKAPI_ATTR void VKAPI_CALL layer_GetBufferMemoryRequirements(VkDevice device,
                                                                    VkBuffer buffer,
                                                                    VkMemoryRequirements *out)
{
    struct device *d = find_device(device);
    struct object *dummy = find(d, BUFFER, HANDLE(buffer));
    if (dummy)
        *out = (VkMemoryRequirements){dummy->size, 256, (1u << d->memory.memoryTypeCount) - 1};
    else
        d->GetBufferMemoryRequirements(device, buffer, out);
    hint.type_bits = out->memoryTypeBits;
}

static VKAPI_ATTR VkResult VKAPI_CALL layer_BindBufferMemory(VkDevice device, VkBuffer buffer,
                                                             VkDeviceMemory memory,
                                                             VkDeviceSize offset)
{
    struct device *d = find_device(device);
    if (is_dummy(d, BUFFER, HANDLE(buffer)) || is_dummy(d, MEMORY, HANDLE(memory)))
        return VK_SUCCESS;
    VkResult result = d->BindBufferMemory(device, buffer, memory, offset);
    if (result != VK_SUCCESS) remember(d, "vkBindBufferMemory", result, 0);
    return VK_SUCCESS;
}

/* For the CPU, Kompute takes the first type that is host visible and coherent. Reading back from
 * memory that the CPU does not cache is some fifty times slower, so a cached type goes first. */
static uint32_t better_type(struct device *d, uint32_t type)
{
    const VkMemoryPropertyFlags wanted = VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT |
        VK_MEMORY_PROPERTY_HOST_COHERENT_BIT | VK_MEMORY_PROPERTY_HOST_CACHED_BIT;
    const VkMemoryType *types = d->memory.memoryTypes;
    if (!hint.readable || (types[type].propertyFlags & wanted) == wanted) return type;
    for (uint32_t t = 0; t < d->memory.memoryTypeCount; t++)
        if (hint.type_bits >> t & 1 && (types[t].propertyFlags & wanted) == wanted) return t;
    return type;
}

/* Try the chosen type; on integrated GPUs then the others: a small carve-out is called device
 * local there, and the rest of the memory is as good. */
static VkResult allocate(struct device *d, VkMemoryAllocateInfo *info,
                         const VkAllocationCallbacks *alloc, VkDeviceMemory *out)
{
    const VkMemoryType *types = d->memory.memoryTypes;
    VkMemoryPropertyFlags mapped = types[info->memoryTypeIndex].propertyFlags &
        (VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT | VK_MEMORY_PROPERTY_HOST_COHERENT_BIT);
    VkResult result = d->AllocateMemory(d->handle, info, alloc, out);
    if (d->properties.deviceType != VK_PHYSICAL_DEVICE_TYPE_INTEGRATED_GPU) return result;
    for (uint32_t t = 0; result != VK_SUCCESS && t < d->memory.memoryTypeCount; t++) {
        bool fits = hint.type_bits >> t & 1 && (types[t].propertyFlags & mapped) == mapped;
        if (!fits) continue;
        info->memoryTypeIndex = t;
        result = d->AllocateMemory(d->handle, info, alloc, out);
    }
    return result;
}

static VKAPI_ATTR VkResult VKAPI_CALL layer_AllocateMemory(VkDevice device,
                                                           const VkMemoryAllocateInfo *info,
                                                           const VkAllocationCallbacks *alloc,
                                                           VkDeviceMemory *out)
{
    struct device *d = find_device(device);
    VkMemoryAllocateInfo changed = *info;
    changed.memoryTypeIndex = better_type(d, info->memoryTypeIndex);
    bool local = d->memory.memoryTypes[changed.memoryTypeIndex].propertyFlags &
        VK_MEMORY_PROPERTY_DEVICE_LOCAL_BIT;
    VkMemoryPriorityAllocateInfoEXT priority = {
        .sType = VK_STRUCTURE_TYPE_MEMORY_PRIORITY_ALLOCATE_INFO_EXT, .pNext = info->pNext,
        .priority = local ? 1.0f : 0.5f};
    if (d->features.priority.memoryPriority) changed.pNext = &priority;

    VkResult result = injected("allocate");
    PyThreadState *gil = release_gil();
    if (result == VK_SUCCESS) result = allocate(d, &changed, alloc, out);
    regain_gil(gil);
    if (result != VK_SUCCESS) remember(d, "vkAllocateMemory", result, info->allocationSize);
    struct object *o = add(d, MEMORY, result == VK_SUCCESS ? HANDLE(*out) : 0);
    *out = (VkDeviceMemory)o->handle;
    o->heap = d->memory.memoryTypes[changed.memoryTypeIndex].heapIndex;
    o->size = info->allocationSize;
    if (!o->dummy) {
        pthread_mutex_lock(&lock);
        d->used[o->heap] += o->size;
        d->allocations++;
        pthread_mutex_unlock(&lock);
    }
    return VK_SUCCESS;
}

static VKAPI_ATTR void VKAPI_CALL layer_FreeMemory(VkDevice device, VkDeviceMemory memory,
                                                   const VkAllocationCallbacks *alloc)
{
    struct device *d = find_device(device);
    struct object *o = take(d, MEMORY, HANDLE(memory));
    if (!o || !o->dummy) d->FreeMemory(device, memory, alloc);
    if (!o) return;
    if (o->mapping) munmap(o->mapping, o->size);
    if (!o->dummy) {
        pthread_mutex_lock(&lock);
        d->used[o->heap] -= o->size;
        d->allocations--;
        pthread_mutex_unlock(&lock);
    }
    free(o);
}

/* Addresses for memory that could not be had: one MiB of real memory, repeated over `size`
 * bytes, so that Kompute's memcpy into it neither crashes nor uses up what is left. */
static void *repeated_mapping(size_t size)
{
    const size_t step = 1 << 20;
    int fd = memfd_create("kompute-llm", MFD_CLOEXEC);
    char *base = MAP_FAILED;
    if (fd >= 0 && !ftruncate(fd, step))
        base = mmap(NULL, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    for (size_t at = 0; base != MAP_FAILED && at < size; at += step) {
        size_t part = size - at < step ? size - at : step;
        int access = PROT_READ | PROT_WRITE;
        if (mmap(base + at, part, access, MAP_SHARED | MAP_FIXED, fd, 0) != MAP_FAILED) continue;
        munmap(base, size);
        base = MAP_FAILED;
    }
    if (fd >= 0) close(fd);
    return base == MAP_FAILED ? NULL : base;
}

static VKAPI_ATTR VkResult VKAPI_CALL layer_MapMemory(VkDevice device, VkDeviceMemory memory,
                                                      VkDeviceSize offset, VkDeviceSize size,
                                                      VkMemoryMapFlags flags, void **out)
{
    struct device *d = find_device(device);
    struct object *o = find(d, MEMORY, HANDLE(memory));
    VkResult result = injected("map");
    if (o && !o->dummy && result == VK_SUCCESS)
        result = d->MapMemory(device, memory, offset, size, flags, out);
    if (o && result != VK_SUCCESS) remember(d, "vkMapMemory", result, size);
    if (o && (o->dummy || result != VK_SUCCESS)) {
        if (!o->mapping) o->mapping = repeated_mapping(o->size);
        *out = o->mapping;
        result = o->mapping ? VK_SUCCESS : VK_ERROR_MEMORY_MAP_FAILED;
    }
    return result;
}

static VKAPI_ATTR void VKAPI_CALL layer_UnmapMemory(VkDevice device, VkDeviceMemory memory)
{
    struct device *d = find_device(device);
    struct object *o = find(d, MEMORY, HANDLE(memory));
    if (o && !o->mapping) d->UnmapMemory(device, memory);
}

/* Only coherent memory is mapped, and Kompute's ranges break the alignment rule of this call. */
static VKAPI_ATTR VkResult VKAPI_CALL layer_FlushMappedMemoryRanges(
    VkDevice device, uint32_t count, const VkMappedMemoryRange *ranges)
{
    (void)device, (void)count, (void)ranges;
    return VK_SUCCESS;
}

/* ---- Pipelines ----------------------------------------------------------------------------- */

/* Objects whose failure Kompute does not notice: remember it and hand out a null handle, which
 * the functions further down know. `complete`: whether what it is made of is there. */
#define REMEMBERING(name, info_type, out_type, complete)                                          \
    static VKAPI_ATTR VkResult VKAPI_CALL layer_##name(VkDevice device, const info_type *info,    \
                                                       const VkAllocationCallbacks *alloc,        \
                                                       out_type *out)                             \
    {                                                                                             \
        struct device *d = find_device(device);                                                   \
        VkResult result = complete ? injected(#name) : VK_ERROR_INITIALIZATION_FAILED;            \
        if (result == VK_SUCCESS) result = d->name(device, info, alloc, out);                     \
        if (result != VK_SUCCESS) {                                                               \
            remember(d, "vk" #name, result, 0);                                                   \
            *out = VK_NULL_HANDLE;                                                                \
        }                                                                                         \
        return VK_SUCCESS;                                                                        \
    }
REMEMBERING(CreateShaderModule, VkShaderModuleCreateInfo, VkShaderModule, true)
REMEMBERING(CreateDescriptorPool, VkDescriptorPoolCreateInfo, VkDescriptorPool, true)
REMEMBERING(CreateDescriptorSetLayout, VkDescriptorSetLayoutCreateInfo, VkDescriptorSetLayout, true)
REMEMBERING(CreatePipelineLayout, VkPipelineLayoutCreateInfo, VkPipelineLayout,
            info->pSetLayouts[0] != VK_NULL_HANDLE)

static VKAPI_ATTR VkResult VKAPI_CALL layer_AllocateDescriptorSets(
    VkDevice device, const VkDescriptorSetAllocateInfo *info, VkDescriptorSet *out)
{
    struct device *d = find_device(device);
    VkResult result = VK_ERROR_OUT_OF_POOL_MEMORY;
    if (info->descriptorPool && info->pSetLayouts[0])
        result = d->AllocateDescriptorSets(device, info, out);
    if (result != VK_SUCCESS) {
        remember(d, "vkAllocateDescriptorSets", result, 0);
        for (uint32_t s = 0; s < info->descriptorSetCount; s++) out[s] = VK_NULL_HANDLE;
    }
    return VK_SUCCESS;
}

static VKAPI_ATTR void VKAPI_CALL layer_UpdateDescriptorSets(VkDevice device, uint32_t writes,
                                                             const VkWriteDescriptorSet *write,
                                                             uint32_t copies,
                                                             const VkCopyDescriptorSet *copy)
{
    struct device *d = find_device(device);
    for (uint32_t w = 0; w < writes; w++) { /* Kompute writes one set at a time */
        const VkDescriptorBufferInfo *b = write[w].pBufferInfo;
        if (!write[w].dstSet || (b && is_dummy(d, BUFFER, HANDLE(b->buffer)))) return;
    }
    d->UpdateDescriptorSets(device, writes, write, copies, copy);
}

static VKAPI_ATTR VkResult VKAPI_CALL layer_CreatePipelineCache(
    VkDevice device, const VkPipelineCacheCreateInfo *info, const VkAllocationCallbacks *alloc,
    VkPipelineCache *out)
{
    (void)info, (void)alloc;
    *out = find_device(device)->cache; /* one for all, saved by Python */
    return VK_SUCCESS;
}

static VKAPI_ATTR void VKAPI_CALL layer_DestroyPipelineCache(VkDevice device, VkPipelineCache cache,
                                                             const VkAllocationCallbacks *alloc)
{
    (void)device, (void)cache, (void)alloc; /* lives as long as the device */
}

static VkResult create_pipeline(struct device *d, const VkComputePipelineCreateInfo *info,
                                const VkAllocationCallbacks *alloc, VkPipeline *out)
{
    VkComputePipelineCreateInfo changed = *info;
    VkPipelineShaderStageRequiredSubgroupSizeCreateInfo size = {
        .sType = VK_STRUCTURE_TYPE_PIPELINE_SHADER_STAGE_REQUIRED_SUBGROUP_SIZE_CREATE_INFO,
        .pNext = (void *)info->stage.pNext, .requiredSubgroupSize = hint.subgroup_size};
    if (hint.subgroup_size && d->features.control.subgroupSizeControl) {
        changed.stage.pNext = &size;
        if (d->features.control.computeFullSubgroups)
            changed.stage.flags |= VK_PIPELINE_SHADER_STAGE_CREATE_REQUIRE_FULL_SUBGROUPS_BIT;
    }
    VkResult result = injected("pipeline");
    if (!info->stage.module || !info->layout) result = VK_ERROR_INITIALIZATION_FAILED;
    if (result != VK_SUCCESS) return result;
    PyThreadState *gil = release_gil(); /* compiling may take seconds */
    result = d->CreateComputePipelines(d->handle, d->cache, 1, &changed, alloc, out);
    regain_gil(gil);
    return result;
}

static VKAPI_ATTR VkResult VKAPI_CALL layer_CreateComputePipelines(
    VkDevice device, VkPipelineCache cache, uint32_t count, const VkComputePipelineCreateInfo *info,
    const VkAllocationCallbacks *alloc, VkPipeline *out)
{
    (void)cache;
    struct device *d = find_device(device);
    for (uint32_t p = 0; p < count; p++) {
        VkResult result = create_pipeline(d, &info[p], alloc, &out[p]);
        if (result == VK_SUCCESS) continue;
        remember(d, "vkCreateComputePipelines", result, 0);
        out[p] = (VkPipeline)add(d, PIPELINE, 0)->handle;
    }
    hint.subgroup_size = 0;
    return VK_SUCCESS;
}

static VKAPI_ATTR void VKAPI_CALL layer_DestroyPipeline(VkDevice device, VkPipeline pipeline,
                                                        const VkAllocationCallbacks *alloc)
{
    struct device *d = find_device(device);
    struct object *dummy = take(d, PIPELINE, HANDLE(pipeline));
    if (!dummy) d->DestroyPipeline(device, pipeline, alloc);
    free(dummy);
}

/* ---- Recording ----------------------------------------------------------------------------- */

/* Queries must be reset before use, which Kompute never does; the pool's size is needed for it. */
static VKAPI_ATTR VkResult VKAPI_CALL layer_CreateQueryPool(VkDevice device,
                                                            const VkQueryPoolCreateInfo *info,
                                                            const VkAllocationCallbacks *alloc,
                                                            VkQueryPool *out)
{
    struct device *d = find_device(device);
    VkResult result = d->CreateQueryPool(device, info, alloc, out);
    if (result == VK_SUCCESS)
        add(d, QUERIES, HANDLE(*out))->count = info->queryCount;
    else
        remember(d, "vkCreateQueryPool", result, 0);
    return result;
}

static VKAPI_ATTR void VKAPI_CALL layer_DestroyQueryPool(VkDevice device, VkQueryPool pool,
                                                         const VkAllocationCallbacks *alloc)
{
    struct device *d = find_device(device);
    free(take(d, QUERIES, HANDLE(pool)));
    d->DestroyQueryPool(device, pool, alloc);
}

static VKAPI_ATTR VkResult VKAPI_CALL layer_GetQueryPoolResults(
    VkDevice device, VkQueryPool pool, uint32_t first, uint32_t count, size_t size, void *data,
    VkDeviceSize stride, VkQueryResultFlags flags)
{
    struct device *d = find_device(device);
    if (d->lost) return VK_ERROR_DEVICE_LOST; /* Kompute waits for results that never come */
    VkResult result = d->GetQueryPoolResults(device, pool, first, count, size, data, stride, flags);
    if (result < 0) remember(d, "vkGetQueryPoolResults", result, 0);
    return result;
}

static VKAPI_ATTR VkResult VKAPI_CALL layer_AllocateCommandBuffers(
    VkDevice device, const VkCommandBufferAllocateInfo *info, VkCommandBuffer *out)
{
    struct device *d = find_device(device);
    VkResult result = d->AllocateCommandBuffers(device, info, out);
    if (result != VK_SUCCESS) remember(d, "vkAllocateCommandBuffers", result, 0);
    for (uint32_t c = 0; result == VK_SUCCESS && c < info->commandBufferCount; c++)
        add(d, COMMANDS, HANDLE(out[c]));
    return result;
}

static VKAPI_ATTR void VKAPI_CALL layer_FreeCommandBuffers(VkDevice device, VkCommandPool pool,
                                                           uint32_t count,
                                                           const VkCommandBuffer *commands)
{
    struct device *d = find_device(device);
    for (uint32_t c = 0; c < count; c++) free(take(d, COMMANDS, HANDLE(commands[c])));
    d->FreeCommandBuffers(device, pool, count, commands);
}

static VKAPI_ATTR VkResult VKAPI_CALL layer_BeginCommandBuffer(VkCommandBuffer commands,
                                                               const VkCommandBufferBeginInfo *info)
{
    struct device *d = find_device(commands);
    struct object *c = find(d, COMMANDS, HANDLE(commands));
    c->runnable = c->open = c->used = false;
    return d->BeginCommandBuffer(commands, info);
}

/* Everything that shaders and copies wrote so far, also in earlier submits, is finished before
 * and visible to what follows at `stage`. Execution order covers write-after-read as well. */
static void barrier(struct device *d, VkCommandBuffer commands, VkPipelineStageFlags stage,
                    VkAccessFlags access)
{
    VkMemoryBarrier all = {.sType = VK_STRUCTURE_TYPE_MEMORY_BARRIER,
        .srcAccessMask = VK_ACCESS_SHADER_WRITE_BIT | VK_ACCESS_TRANSFER_WRITE_BIT,
        .dstAccessMask = access};
    d->CmdPipelineBarrier(commands,
                          VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT | VK_PIPELINE_STAGE_TRANSFER_BIT,
                          stage, 0, 1, &all, 0, NULL, 0, NULL);
    d->barriers++;
}

/* The fence makes results available, but only a barrier makes them visible to the host. */
static VKAPI_ATTR VkResult VKAPI_CALL layer_EndCommandBuffer(VkCommandBuffer commands)
{
    struct device *d = find_device(commands);
    if (find(d, COMMANDS, HANDLE(commands))->used)
        barrier(d, commands, VK_PIPELINE_STAGE_HOST_BIT, VK_ACCESS_HOST_READ_BIT);
    VkResult result = d->EndCommandBuffer(commands);
    if (result != VK_SUCCESS) remember(d, "vkEndCommandBuffer", result, 0);
    return result;
}

/* Kompute's own barriers order transfers against shaders only and one tensor at a time. They are
 * dropped: every dispatch and copy below brings its own. */
static VKAPI_ATTR void VKAPI_CALL layer_CmdPipelineBarrier(
    VkCommandBuffer commands, VkPipelineStageFlags from, VkPipelineStageFlags to,
    VkDependencyFlags flags, uint32_t memory_count, const VkMemoryBarrier *memory,
    uint32_t buffer_count, const VkBufferMemoryBarrier *buffers, uint32_t image_count,
    const VkImageMemoryBarrier *images)
{
    (void)commands, (void)from, (void)to, (void)flags, (void)memory_count, (void)memory;
    (void)buffer_count, (void)buffers, (void)image_count, (void)images;
}

static VKAPI_ATTR void VKAPI_CALL layer_CmdBindPipeline(VkCommandBuffer commands,
                                                        VkPipelineBindPoint point,
                                                        VkPipeline pipeline)
{
    struct device *d = find_device(commands);
    struct object *c = find(d, COMMANDS, HANDLE(commands));
    c->runnable = !is_dummy(d, PIPELINE, HANDLE(pipeline));
    if (c->runnable) d->CmdBindPipeline(commands, point, pipeline);
}

static VKAPI_ATTR void VKAPI_CALL layer_CmdBindDescriptorSets(
    VkCommandBuffer commands, VkPipelineBindPoint point, VkPipelineLayout layout, uint32_t first,
    uint32_t count, const VkDescriptorSet *sets, uint32_t offset_count, const uint32_t *offsets)
{
    struct device *d = find_device(commands);
    struct object *c = find(d, COMMANDS, HANDLE(commands));
    for (uint32_t s = 0; s < count; s++) c->runnable = c->runnable && layout && sets[s];
    if (c->runnable)
        d->CmdBindDescriptorSets(commands, point, layout, first, count, sets, offset_count,
                                 offsets);
}

static VKAPI_ATTR void VKAPI_CALL layer_CmdPushConstants(VkCommandBuffer commands,
                                                         VkPipelineLayout layout,
                                                         VkShaderStageFlags stages, uint32_t offset,
                                                         uint32_t size, const void *values)
{
    struct device *d = find_device(commands);
    if (find(d, COMMANDS, HANDLE(commands))->runnable)
        d->CmdPushConstants(commands, layout, stages, offset, size, values);
}

static VKAPI_ATTR void VKAPI_CALL layer_CmdDispatch(VkCommandBuffer commands, uint32_t x,
                                                    uint32_t y, uint32_t z)
{
    struct device *d = find_device(commands);
    struct object *c = find(d, COMMANDS, HANDLE(commands));
    bool independent = hint.dispatch && hint.independent && c->open;
    if (hint.dispatch) x = hint.grid[0], y = hint.grid[1], z = hint.grid[2];
    hint.dispatch = false;
    if (!c->runnable) {
        d->dropped++;
        return;
    }
    if (!independent)
        barrier(d, commands, VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT,
                VK_ACCESS_SHADER_READ_BIT | VK_ACCESS_SHADER_WRITE_BIT);
    d->CmdDispatch(commands, x, y, z);
    d->dispatches++;
    c->open = c->used = true;
}

static VKAPI_ATTR void VKAPI_CALL layer_CmdCopyBuffer(VkCommandBuffer commands, VkBuffer source,
                                                      VkBuffer target, uint32_t count,
                                                      const VkBufferCopy *regions)
{
    struct device *d = find_device(commands);
    struct object *c = find(d, COMMANDS, HANDLE(commands));
    VkBufferCopy region = hint.region;
    if (hint.copy) {
        source = (VkBuffer)hint.source;
        target = (VkBuffer)hint.target;
        count = 1;
        regions = &region;
        hint.copy = false;
    }
    if (is_dummy(d, BUFFER, HANDLE(source)) || is_dummy(d, BUFFER, HANDLE(target))) return;
    barrier(d, commands, VK_PIPELINE_STAGE_TRANSFER_BIT,
            VK_ACCESS_TRANSFER_READ_BIT | VK_ACCESS_TRANSFER_WRITE_BIT);
    d->CmdCopyBuffer(commands, source, target, count, regions);
    c->open = false;
    c->used = true;
}

static VKAPI_ATTR void VKAPI_CALL layer_CmdWriteTimestamp(VkCommandBuffer commands,
                                                          VkPipelineStageFlagBits stage,
                                                          VkQueryPool pool, uint32_t query)
{
    struct device *d = find_device(commands);
    struct object *q = find(d, QUERIES, HANDLE(pool));
    if (query == 0 && q) d->CmdResetQueryPool(commands, pool, 0, q->count);
    d->CmdWriteTimestamp(commands, stage, pool, query);
}

/* ---- Submitting and waiting ---------------------------------------------------------------- */

static VKAPI_ATTR VkResult VKAPI_CALL layer_QueueSubmit(VkQueue queue, uint32_t count,
                                                        const VkSubmitInfo *submits, VkFence fence)
{
    struct device *d = find_device(queue);
    if (d->lost) return VK_ERROR_DEVICE_LOST;
    VkResult result = injected("submit");
    /* Under the GIL: Vulkan wants one submit at a time, and this one is short. */
    if (result == VK_SUCCESS) result = d->QueueSubmit(queue, count, submits, fence);
    d->submits++;
    /* A fence that was never submitted would be waited for without end: the device is given up. */
    if (result != VK_SUCCESS) {
        remember(d, "vkQueueSubmit", result, 0);
        d->lost = true;
    }
    return result;
}

/* Creating and destroying a fence costs 500 µs on one driver, so they are kept. They are reset at
 * the next wait, while the device works: then that takes no time. */
static VKAPI_ATTR VkResult VKAPI_CALL layer_CreateFence(VkDevice device,
                                                        const VkFenceCreateInfo *info,
                                                        const VkAllocationCallbacks *alloc,
                                                        VkFence *out)
{
    struct device *d = find_device(device);
    VkFence kept = VK_NULL_HANDLE;
    pthread_mutex_lock(&lock);
    if (d->fence_count && !info->flags && !info->pNext) kept = d->fences[--d->fence_count];
    pthread_mutex_unlock(&lock);
    if (kept) {
        *out = kept;
        return VK_SUCCESS;
    }
    VkResult result = d->CreateFence(device, info, alloc, out);
    if (result != VK_SUCCESS) remember(d, "vkCreateFence", result, 0);
    d->fences_made++;
    return result;
}

static VKAPI_ATTR void VKAPI_CALL layer_DestroyFence(VkDevice device, VkFence fence,
                                                     const VkAllocationCallbacks *alloc)
{
    struct device *d = find_device(device);
    bool kept = false;
    if (!fence) return;
    if (fence == d->left_last) return; /* finish_wait does it */
    pthread_mutex_lock(&lock);
    if (d->signaled == fence && d->fence_count + d->used_fence_count < FENCES) {
        d->used_fences[d->used_fence_count++] = fence;
        d->signaled = VK_NULL_HANDLE;
        kept = true;
    }
    pthread_mutex_unlock(&lock);
    if (!kept) d->DestroyFence(device, fence, alloc);
}

static void reset_used_fences(struct device *d)
{
    VkFence used[FENCES];
    pthread_mutex_lock(&lock);
    uint32_t count = d->used_fence_count;
    memcpy(used, d->used_fences, count * sizeof *used);
    d->used_fence_count = 0;
    pthread_mutex_unlock(&lock);
    if (!count) return;
    bool reset = d->ResetFences(d->handle, count, used) == VK_SUCCESS;
    pthread_mutex_lock(&lock);
    while (reset && count && d->fence_count < FENCES) d->fences[d->fence_count++] = used[--count];
    pthread_mutex_unlock(&lock);
    while (count) d->DestroyFence(d->handle, used[--count], NULL);
}

/* Spin for a while, then block. A blocking wait alone adds the 50 µs of a thread wake-up. */
static VkResult wait_fences(struct device *d, uint32_t count, const VkFence *fences, VkBool32 all,
                            uint64_t timeout)
{
    VkResult result = VK_NOT_READY;
    int64_t spin = (uint64_t)d->spin_ns < timeout ? d->spin_ns : (int64_t)timeout;
    if (count == 1 && spin > 0) {
        int64_t deadline = now_ns() + spin;
        do {
            result = d->GetFenceStatus(d->handle, fences[0]);
            if (result != VK_NOT_READY) break;
#if defined(__x86_64__) || defined(__i386__)
            __builtin_ia32_pause(); /* up to 140 cycles */
#elif defined(__aarch64__)
            __asm__ volatile("yield");
#endif
        } while (now_ns() < deadline);
    }
    if (result == VK_NOT_READY) result = d->WaitForFences(d->handle, count, fences, all, timeout);
    return result;
}

static VKAPI_ATTR VkResult VKAPI_CALL layer_WaitForFences(VkDevice device, uint32_t count,
                                                          const VkFence *fences, VkBool32 all,
                                                          uint64_t timeout)
{
    struct device *d = find_device(device);
    if (d->lost) return VK_ERROR_DEVICE_LOST;
    if (d->leave && count == 1 && d->left_count < FENCES) {
        d->left[d->left_count++] = d->left_last = fences[0];
        return VK_SUCCESS; /* Kompute destroys the fence next: layer_DestroyFence leaves it alone */
    }
    PyThreadState *gil = release_gil();
    reset_used_fences(d);
    VkResult result = wait_fences(d, count, fences, all, timeout);
    regain_gil(gil);
    if (result == VK_SUCCESS && count == 1) d->signaled = fences[0];
    VkResult fault = injected("wait"); /* after the real wait: nothing is left running */
    if (fault != VK_SUCCESS) result = fault;
    if (result < 0) remember(d, "vkWaitForFences", result, 0);
    return result;
}

/* ---- Entry points for the loader ----------------------------------------------------------- */

#define HOOK(name) {"vk" #name, (PFN_vkVoidFunction)layer_##name},
static const struct {
    const char *name;
    PFN_vkVoidFunction function;
} hooks[] = {HOOKED_FUNCTIONS(HOOK)};

static PFN_vkVoidFunction hooked(const char *name)
{
    for (size_t h = 0; h < sizeof hooks / sizeof *hooks; h++)
        if (!strcmp(hooks[h].name, name)) return hooks[h].function;
    return NULL;
}

static VKAPI_ATTR PFN_vkVoidFunction VKAPI_CALL layer_GetDeviceProcAddr(VkDevice device,
                                                                        const char *name)
{
    if (!strcmp(name, "vkGetDeviceProcAddr")) return (PFN_vkVoidFunction)layer_GetDeviceProcAddr;
    PFN_vkVoidFunction function = hooked(name);
    struct device *d = function || !device ? NULL : find_device(device);
    return d ? d->get(device, name) : function;
}

static VKAPI_ATTR PFN_vkVoidFunction VKAPI_CALL layer_GetInstanceProcAddr(VkInstance instance,
                                                                          const char *name)
{
#define OWN(function) \
    if (!strcmp(name, "vk" #function)) return (PFN_vkVoidFunction)layer_##function
    OWN(GetInstanceProcAddr);
    OWN(GetDeviceProcAddr);
    OWN(CreateInstance);
    OWN(DestroyInstance);
    OWN(CreateDevice);
    PFN_vkVoidFunction function = hooked(name);
    struct instance *i = function || !instance ? NULL : find_instance(instance);
    return i ? i->get(instance, name) : function;
}

VK_LAYER_EXPORT VKAPI_ATTR VkResult VKAPI_CALL
vkNegotiateLoaderLayerInterfaceVersion(VkNegotiateLayerInterface *version)
{
    if (version->loaderLayerInterfaceVersion > 2) version->loaderLayerInterfaceVersion = 2;
    version->pfnGetInstanceProcAddr = layer_GetInstanceProcAddr;
    version->pfnGetDeviceProcAddr = layer_GetDeviceProcAddr;
    version->pfnGetPhysicalDeviceProcAddr = NULL;
    return VK_SUCCESS;
}

/* ---- Listing devices, with an instance of our own ------------------------------------------ */

static PyObject *text(const char *bytes)
{
    return PyUnicode_DecodeUTF8(bytes, strlen(bytes), "replace");
}

static void put(PyObject *dict, const char *key, PyObject *value)
{
    if (value) PyDict_SetItemString(dict, key, value);
    Py_XDECREF(value);
}

/* An instance without Kompute, made anew by every listing. It stays open, so that the driver's
 * library, which takes long to load, is there when Kompute comes. libvulkan is opened here: the
 * module can be imported without it. Python calls this under the GIL. */
static struct instance own;

static bool open_instance(void)
{
    if (own.handle) own.DestroyInstance(own.handle, NULL);
    memset(&own, 0, sizeof own);
    void *library = dlopen("libvulkan.so.1", RTLD_NOW | RTLD_LOCAL);
    own.get = library ? (PFN_vkGetInstanceProcAddr)dlsym(library, "vkGetInstanceProcAddr") : NULL;
    PFN_vkCreateInstance create =
        own.get ? (PFN_vkCreateInstance)own.get(NULL, "vkCreateInstance") : NULL;
    if (!create) return false;
    VkApplicationInfo app = {.sType = VK_STRUCTURE_TYPE_APPLICATION_INFO,
        .pApplicationName = "kompute-llm", .apiVersion = VK_API_VERSION_1_3};
    VkInstanceCreateInfo info = {.sType = VK_STRUCTURE_TYPE_INSTANCE_CREATE_INFO,
        .pApplicationInfo = &app};
    VkInstance handle;
    if (create(&info, NULL, &handle) != VK_SUCCESS) return false;
    load_instance(&own, handle, own.get);
    return true;
}

static uint32_t list_physical(struct instance *i, VkPhysicalDevice *list, uint32_t size)
{
    return i->EnumeratePhysicalDevices(i->handle, &size, list) < 0 ? 0 : size;
}

/* The first family with compute and without graphics, whose submits are quicker (2 of 17 us on an
 * H200), if it has timestamps where the first one with compute has; else that one. */
static bool compute_family(struct instance *i, VkPhysicalDevice physical, uint32_t *family,
                           uint32_t *timestamp_bits)
{
    VkQueueFamilyProperties list[32];
    uint32_t count = 32;
    i->GetPhysicalDeviceQueueFamilyProperties(physical, &count, list);
    bool found = false;
    for (uint32_t f = 0; f < count; f++) {
        const VkQueueFlags flags = list[f].queueFlags;
        const uint32_t bits = list[f].timestampValidBits;
        const bool plain = !(flags & VK_QUEUE_GRAPHICS_BIT);
        if (!(flags & VK_QUEUE_COMPUTE_BIT)) continue;
        if (found && (!plain || (*timestamp_bits && !bits))) continue;
        *family = f;
        *timestamp_bits = bits;
        found = true;
        if (plain) break;
    }
    return found;
}

static void put_limits(PyObject *dict, const VkPhysicalDeviceLimits *l)
{
    put(dict, "workgroup_invocations", PyLong_FromUnsignedLong(l->maxComputeWorkGroupInvocations));
    put(dict, "workgroup_size", Py_BuildValue("III", l->maxComputeWorkGroupSize[0],
        l->maxComputeWorkGroupSize[1], l->maxComputeWorkGroupSize[2]));
    put(dict, "grid", Py_BuildValue("III", l->maxComputeWorkGroupCount[0],
        l->maxComputeWorkGroupCount[1], l->maxComputeWorkGroupCount[2]));
    put(dict, "shared_bytes", PyLong_FromUnsignedLong(l->maxComputeSharedMemorySize));
    put(dict, "storage_range", PyLong_FromUnsignedLong(l->maxStorageBufferRange));
    put(dict, "push_bytes", PyLong_FromUnsignedLong(l->maxPushConstantsSize));
    put(dict, "bindings", PyLong_FromUnsignedLong(l->maxPerStageDescriptorStorageBuffers));
    put(dict, "allocations", PyLong_FromUnsignedLong(l->maxMemoryAllocationCount));
    put(dict, "timestamps", PyBool_FromLong(l->timestampComputeAndGraphics));
    put(dict, "timestamp_period", PyFloat_FromDouble(l->timestampPeriod));
}

static void put_features(PyObject *dict, const struct features *f)
{
    const VkBool32 dot = f->dot.shaderIntegerDotProduct;
    put(dict, "float16", PyBool_FromLong(f->small.shaderFloat16));
    put(dict, "int8", PyBool_FromLong(f->small.shaderInt8));
    put(dict, "int16", PyBool_FromLong(f->core.features.shaderInt16));
    put(dict, "int64", PyBool_FromLong(f->core.features.shaderInt64));
    put(dict, "storage16", PyBool_FromLong(f->storage16.storageBuffer16BitAccess));
    put(dict, "storage8", PyBool_FromLong(f->storage8.storageBuffer8BitAccess));
    put(dict, "memory_model", PyBool_FromLong(f->model.vulkanMemoryModel));
    put(dict, "subgroup_control", PyBool_FromLong(f->control.subgroupSizeControl));
    put(dict, "full_subgroups", PyBool_FromLong(f->control.computeFullSubgroups));
    put(dict, "int_dot", PyBool_FromLong(dot));
    put(dict, "coopmat", PyBool_FromLong(f->matrix.cooperativeMatrix));
    put(dict, "memory_budget", PyBool_FromLong(f->budget));
}

/* Properties beyond the core ones, each chained only where the device knows the structure. */
static void put_properties(PyObject *dict, struct instance *i, VkPhysicalDevice physical)
{
    VkPhysicalDeviceIDProperties id = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_ID_PROPERTIES};
    VkPhysicalDeviceMaintenance3Properties limit = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MAINTENANCE_3_PROPERTIES, .pNext = &id};
    VkPhysicalDeviceSubgroupProperties subgroup = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SUBGROUP_PROPERTIES, .pNext = &limit};
    VkPhysicalDeviceDriverProperties driver = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_DRIVER_PROPERTIES};
    VkPhysicalDeviceSubgroupSizeControlProperties control = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SUBGROUP_SIZE_CONTROL_PROPERTIES};
    VkPhysicalDeviceShaderIntegerDotProductProperties dot = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SHADER_INTEGER_DOT_PRODUCT_PROPERTIES};
    VkPhysicalDeviceShaderSMBuiltinsPropertiesNV sm = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SHADER_SM_BUILTINS_PROPERTIES_NV};
    VkPhysicalDeviceShaderCorePropertiesAMD amd = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SHADER_CORE_PROPERTIES_AMD};
    VkPhysicalDeviceShaderCoreBuiltinsPropertiesARM arm = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SHADER_CORE_BUILTINS_PROPERTIES_ARM};
    VkPhysicalDeviceProperties2 all = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PROPERTIES_2, .pNext = &subgroup};
    struct {
        const char *extension;
        uint32_t core;
        void *structure;
    } more[] = {
        {"VK_KHR_driver_properties", VK_API_VERSION_1_2, &driver},
        {"VK_EXT_subgroup_size_control", VK_API_VERSION_1_3, &control},
        {"VK_KHR_shader_integer_dot_product", VK_API_VERSION_1_3, &dot},
        {"VK_NV_shader_sm_builtins", UINT32_MAX, &sm},
        {"VK_AMD_shader_core_properties", UINT32_MAX, &amd},
        {"VK_ARM_shader_core_builtins", UINT32_MAX, &arm},
    };
    struct offer o = device_offer(i, physical);
    VkBaseOutStructure *tail = (VkBaseOutStructure *)&id;
    for (size_t m = 0; m < sizeof more / sizeof *more; m++)
        if (o.api >= more[m].core || offers(&o, more[m].extension))
            tail = tail->pNext = more[m].structure;
    free(o.list);
    i->GetPhysicalDeviceProperties2(physical, &all);

    put(dict, "uuid", PyBytes_FromStringAndSize((char *)id.deviceUUID, VK_UUID_SIZE));
    put(dict, "allocation", PyLong_FromUnsignedLongLong(limit.maxMemoryAllocationSize));
    put(dict, "driver", text(driver.driverName));
    put(dict, "driver_info", text(driver.driverInfo));
    put(dict, "subgroup_size", PyLong_FromUnsignedLong(subgroup.subgroupSize));
    put(dict, "subgroup_stages", PyLong_FromUnsignedLong(subgroup.supportedStages));
    put(dict, "subgroup_operations", PyLong_FromUnsignedLong(subgroup.supportedOperations));
    put(dict, "subgroup_min", PyLong_FromUnsignedLong(control.minSubgroupSize));
    put(dict, "subgroup_max", PyLong_FromUnsignedLong(control.maxSubgroupSize));
    put(dict, "subgroup_count", PyLong_FromUnsignedLong(control.maxComputeWorkgroupSubgroups));
    put(dict, "subgroup_size_stages", PyLong_FromUnsignedLong(control.requiredSubgroupSizeStages));
    put(dict, "int_dot_accelerated",
        PyBool_FromLong(dot.integerDotProduct4x8BitPackedSignedAccelerated));
    uint32_t units = amd.shaderEngineCount * amd.shaderArraysPerEngineCount *
        amd.computeUnitsPerShaderArray;
    units += sm.shaderSMCount + arm.shaderCoreCount; /* of these three, two are 0 */
    put(dict, "compute_units", PyLong_FromUnsignedLong(units));
}

/* Heaps as (bytes, budget of this process or 0, used by it, flags), types as (flags, heap). */
static void put_memory(PyObject *dict, struct instance *i, VkPhysicalDevice physical, bool budget)
{
    VkPhysicalDeviceMemoryBudgetPropertiesEXT figures = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MEMORY_BUDGET_PROPERTIES_EXT};
    VkPhysicalDeviceMemoryProperties2 memory = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MEMORY_PROPERTIES_2,
        .pNext = budget ? &figures : NULL};
    i->GetPhysicalDeviceMemoryProperties2(physical, &memory);
    const VkPhysicalDeviceMemoryProperties *m = &memory.memoryProperties;
    PyObject *heaps = PyList_New(0), *types = PyList_New(0);
    for (uint32_t h = 0; heaps && h < m->memoryHeapCount; h++) {
        PyObject *heap = Py_BuildValue("KKKI", m->memoryHeaps[h].size, figures.heapBudget[h],
                                       figures.heapUsage[h], m->memoryHeaps[h].flags);
        if (heap) PyList_Append(heaps, heap);
        Py_XDECREF(heap);
    }
    for (uint32_t t = 0; types && t < m->memoryTypeCount; t++) {
        PyObject *type = Py_BuildValue("II", m->memoryTypes[t].propertyFlags,
                                       m->memoryTypes[t].heapIndex);
        if (type) PyList_Append(types, type);
        Py_XDECREF(type);
    }
    put(dict, "heaps", heaps);
    put(dict, "types", types);
}

/* Shapes of cooperative matrices as (M, N, K, A type, B type, C type, result type, scope). */
static PyObject *matrix_shapes(struct instance *i, VkPhysicalDevice physical)
{
    PFN_vkGetPhysicalDeviceCooperativeMatrixPropertiesKHR get =
        (PFN_vkGetPhysicalDeviceCooperativeMatrixPropertiesKHR)i->get(
            i->handle, "vkGetPhysicalDeviceCooperativeMatrixPropertiesKHR");
    PyObject *result = PyList_New(0);
    uint32_t count = 0;
    if (!get || !result || get(physical, &count, NULL)) return result;
    VkCooperativeMatrixPropertiesKHR *list = calloc(count + 1, sizeof *list);
    for (uint32_t s = 0; list && s < count; s++)
        list[s].sType = VK_STRUCTURE_TYPE_COOPERATIVE_MATRIX_PROPERTIES_KHR;
    if (!list || get(physical, &count, list)) count = 0;
    for (uint32_t s = 0; s < count; s++) {
        PyObject *shape = Py_BuildValue(
            "IIIiiiii", list[s].MSize, list[s].NSize, list[s].KSize, (int)list[s].AType,
            (int)list[s].BType, (int)list[s].CType, (int)list[s].ResultType, (int)list[s].scope);
        if (shape) PyList_Append(result, shape);
        Py_XDECREF(shape);
    }
    free(list);
    return result;
}

static PyObject *describe(struct instance *i, VkPhysicalDevice physical)
{
    PyObject *dict = PyDict_New();
    VkPhysicalDeviceProperties p;
    i->GetPhysicalDeviceProperties(physical, &p);
    if (!dict) return NULL;
    put(dict, "name", text(p.deviceName));
    put(dict, "type", PyLong_FromLong(p.deviceType));
    put(dict, "vendor_id", PyLong_FromUnsignedLong(p.vendorID));
    put(dict, "device_id", PyLong_FromUnsignedLong(p.deviceID));
    put(dict, "driver_version", PyLong_FromUnsignedLong(p.driverVersion));
    put(dict, "cache_uuid", PyBytes_FromStringAndSize((char *)p.pipelineCacheUUID, VK_UUID_SIZE));
    struct offer o = device_offer(i, physical);
    free(o.list);
    put(dict, "api", Py_BuildValue("III", VK_API_VERSION_MAJOR(o.api), VK_API_VERSION_MINOR(o.api),
        VK_API_VERSION_PATCH(o.api)));
    put_limits(dict, &p.limits);
    uint32_t family = 0, bits = 0;
    put(dict, "compute", PyBool_FromLong(compute_family(i, physical, &family, &bits)));
    put(dict, "queue_family", PyLong_FromUnsignedLong(family));
    put(dict, "timestamp_bits", PyLong_FromUnsignedLong(bits));
    if (o.api < VK_API_VERSION_1_1) return dict; /* refused in Python */
    struct features f;
    query_features(i, physical, &f);
    put_features(dict, &f);
    put_properties(dict, i, physical);
    put_memory(dict, i, physical, f.budget);
    bool matrix = f.matrix.cooperativeMatrix;
    put(dict, "matrix_shapes", matrix ? matrix_shapes(i, physical) : PyList_New(0));
    return dict;
}

static PyObject *py_device_list(PyObject *self, PyObject *args)
{
    (void)self, (void)args;
    PyObject *result = PyList_New(0);
    if (!result || !open_instance()) return result;
    VkPhysicalDevice list[32];
    uint32_t count = list_physical(&own, list, 32);
    for (uint32_t p = 0; p < count; p++) {
        PyObject *device = describe(&own, list[p]);
        if (device) PyList_Append(result, device);
        Py_XDECREF(device);
    }
    return result;
}

/* Create and destroy the device as Kompute will: Kompute itself would crash on a failure. */
static PyObject *py_check_device(PyObject *self, PyObject *args)
{
    (void)self;
    unsigned index;
    if (!PyArg_ParseTuple(args, "I", &index)) return NULL;
    if (!own.handle && !open_instance()) return PyLong_FromLong(VK_ERROR_INCOMPATIBLE_DRIVER);
    VkPhysicalDevice list[32];
    uint32_t family = 0, bits = 0, count = list_physical(&own, list, 32);
    VkResult result = injected("device");
    if (index >= count || !compute_family(&own, list[index], &family, &bits))
        result = VK_ERROR_INITIALIZATION_FAILED;
    if (result != VK_SUCCESS) return PyLong_FromLong(result);
    struct features f;
    query_features(&own, list[index], &f);
    float one = 1.0f;
    VkDeviceQueueCreateInfo queue = {.sType = VK_STRUCTURE_TYPE_DEVICE_QUEUE_CREATE_INFO,
        .queueFamilyIndex = family, .queueCount = 1, .pQueuePriorities = &one};
    VkDeviceCreateInfo info = {.sType = VK_STRUCTURE_TYPE_DEVICE_CREATE_INFO, .pNext = &f.core,
        .queueCreateInfoCount = 1, .pQueueCreateInfos = &queue,
        .enabledExtensionCount = f.extension_count, .ppEnabledExtensionNames = f.extensions};
    VkDevice device;
    result = own.CreateDevice(list[index], &info, NULL, &device);
    PFN_vkDestroyDevice destroy = (PFN_vkDestroyDevice)own.get(own.handle, "vkDestroyDevice");
    if (result == VK_SUCCESS) destroy(device, NULL);
    return PyLong_FromLong(result);
}

/* ---- The Python module --------------------------------------------------------------------- */

/* The device of a number, or NULL with a Python error. */
static struct device *numbered(unsigned id)
{
    pthread_mutex_lock(&lock);
    struct device *d = devices;
    while (d && d->id != id) d = d->next_device;
    pthread_mutex_unlock(&lock);
    if (!d) PyErr_Format(PyExc_ValueError, "no open device has the number %u", id);
    return d;
}

static PyObject *py_next_dispatch(PyObject *self, PyObject *args)
{
    (void)self;
    int independent;
    if (!PyArg_ParseTuple(args, "IIIp", &hint.grid[0], &hint.grid[1], &hint.grid[2], &independent))
        return NULL;
    hint.dispatch = true;
    hint.independent = independent;
    Py_RETURN_NONE;
}

static PyObject *py_next_pipeline(PyObject *self, PyObject *args)
{
    (void)self;
    if (!PyArg_ParseTuple(args, "I", &hint.subgroup_size)) return NULL;
    Py_RETURN_NONE;
}

static PyObject *py_next_copy(PyObject *self, PyObject *args)
{
    (void)self;
    unsigned long long source, target, from, to, size;
    if (!PyArg_ParseTuple(args, "KKKKK", &source, &target, &from, &to, &size)) return NULL;
    hint.source = source;
    hint.target = target;
    hint.region = (VkBufferCopy){from, to, size};
    hint.copy = true;
    Py_RETURN_NONE;
}

static PyObject *py_host_buffers(PyObject *self, PyObject *args)
{
    (void)self;
    int on;
    if (!PyArg_ParseTuple(args, "p", &on)) return NULL;
    hint.host = on;
    Py_RETURN_NONE;
}

static PyObject *py_clear_hints(PyObject *self, PyObject *args)
{
    (void)self, (void)args;
    hint.dispatch = hint.copy = hint.host = false;
    hint.subgroup_size = hint.created_count = 0;
    Py_RETURN_NONE;
}

static PyObject *py_created_buffers(PyObject *self, PyObject *args)
{
    (void)self, (void)args;
    PyObject *result = PyTuple_New(hint.created_count);
    for (unsigned b = 0; result && b < hint.created_count; b++)
        PyTuple_SET_ITEM(result, b, PyLong_FromUnsignedLongLong(hint.created[b]));
    hint.created_count = 0;
    return result;
}

static PyObject *py_last_device(PyObject *self, PyObject *args)
{
    (void)self, (void)args;
    unsigned id = hint.device_id;
    hint.device_id = 0;
    return PyLong_FromUnsignedLong(id);
}

static PyObject *py_device_facts(PyObject *self, PyObject *args)
{
    (void)self;
    unsigned id;
    struct device *d = PyArg_ParseTuple(args, "I", &id) ? numbered(id) : NULL;
    PyObject *dict = d ? PyDict_New() : NULL;
    if (!dict) return NULL;
    const VkPhysicalDeviceProperties *p = &d->properties;
    put(dict, "name", text(p->deviceName));
    put(dict, "cache_uuid", PyBytes_FromStringAndSize((char *)p->pipelineCacheUUID, VK_UUID_SIZE));
    put_features(dict, &d->features);
    return dict;
}

static PyObject *py_take_error(PyObject *self, PyObject *args)
{
    (void)self;
    unsigned id;
    struct device *d = PyArg_ParseTuple(args, "I", &id) ? numbered(id) : NULL;
    if (!d) return NULL;
    pthread_mutex_lock(&lock);
    const char *where = d->error_where;
    VkResult result = d->error_result;
    VkDeviceSize size = d->error_size;
    d->error_where = NULL;
    pthread_mutex_unlock(&lock);
    if (!where) Py_RETURN_NONE;
    return Py_BuildValue("siK", where, (int)result, (unsigned long long)size);
}

static PyObject *py_counters(PyObject *self, PyObject *args)
{
    (void)self;
    unsigned id;
    struct device *d = PyArg_ParseTuple(args, "I", &id) ? numbered(id) : NULL;
    if (!d) return NULL;
    return Py_BuildValue("{sKsKsKsKsKsKsO}", "submits", d->submits, "fences", d->fences_made,
                         "dispatches", d->dispatches, "barriers", d->barriers,
                         "dropped", d->dropped, "allocations", d->allocations,
                         "lost", d->lost ? Py_True : Py_False);
}

static PyObject *py_memory(PyObject *self, PyObject *args)
{
    (void)self;
    unsigned id;
    struct device *d = PyArg_ParseTuple(args, "I", &id) ? numbered(id) : NULL;
    PyObject *result = d ? PyList_New(0) : NULL;
    if (!result) return NULL;
    VkPhysicalDeviceMemoryBudgetPropertiesEXT figures = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MEMORY_BUDGET_PROPERTIES_EXT};
    VkPhysicalDeviceMemoryProperties2 memory = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MEMORY_PROPERTIES_2, .pNext = &figures};
    if (d->features.budget) d->instance->GetPhysicalDeviceMemoryProperties2(d->physical, &memory);
    for (uint32_t h = 0; h < d->memory.memoryHeapCount; h++) {
        const VkMemoryHeap *known = &d->memory.memoryHeaps[h];
        PyObject *heap = Py_BuildValue("KKKIK", known->size, figures.heapBudget[h],
                                       figures.heapUsage[h], known->flags, d->used[h]);
        if (heap) PyList_Append(result, heap);
        Py_XDECREF(heap);
    }
    return result;
}

/* Kompute 0.9.0 has no submit of a recorded sequence that returns at once: its eval_async() is
 * eval(). So the wait in there is left out, and done by finish_wait. */
static PyObject *py_leave_wait(PyObject *self, PyObject *args)
{
    (void)self;
    unsigned id;
    int on;
    struct device *d = PyArg_ParseTuple(args, "Ip", &id, &on) ? numbered(id) : NULL;
    if (!d) return NULL;
    VkFence left = d->left_last;
    d->leave = on;
    d->left_last = VK_NULL_HANDLE;
    return PyLong_FromUnsignedLongLong(HANDLE(left));
}

static PyObject *py_finish_wait(PyObject *self, PyObject *args)
{
    (void)self;
    unsigned id;
    unsigned long long handle;
    struct device *d = PyArg_ParseTuple(args, "IK", &id, &handle) ? numbered(id) : NULL;
    if (!d) return NULL;
    for (uint32_t f = 0; f < d->left_count; f++) {
        if (HANDLE(d->left[f]) != handle) continue;
        VkFence fence = d->left[f];
        d->left[f] = d->left[--d->left_count];
        bool waited = layer_WaitForFences(d->handle, 1, &fence, VK_TRUE, UINT64_MAX) == VK_SUCCESS;
        if (waited) layer_DestroyFence(d->handle, fence, NULL);
        else if (d->left_count < FENCES) d->left[d->left_count++] = fence; /* until the end */
        break;
    }
    Py_RETURN_NONE;
}

static PyObject *py_set_spin(PyObject *self, PyObject *args)
{
    (void)self;
    unsigned id, micros;
    struct device *d = PyArg_ParseTuple(args, "II", &id, &micros) ? numbered(id) : NULL;
    if (!d) return NULL;
    d->spin_ns = micros * INT64_C(1000);
    Py_RETURN_NONE;
}

static PyObject *py_pipeline_cache_load(PyObject *self, PyObject *args)
{
    (void)self;
    unsigned id;
    Py_buffer data;
    if (!PyArg_ParseTuple(args, "Iy*", &id, &data)) return NULL;
    struct device *d = numbered(id);
    VkResult result = VK_ERROR_INITIALIZATION_FAILED;
    if (d && d->cache) {
        VkPipelineCacheCreateInfo info = {.sType = VK_STRUCTURE_TYPE_PIPELINE_CACHE_CREATE_INFO,
            .initialDataSize = data.len, .pInitialData = data.buf};
        VkPipelineCache loaded;
        result = d->CreatePipelineCache(d->handle, &info, NULL, &loaded);
        if (result == VK_SUCCESS) {
            result = d->MergePipelineCaches(d->handle, d->cache, 1, &loaded);
            d->DestroyPipelineCache(d->handle, loaded, NULL);
        }
    }
    PyBuffer_Release(&data);
    return d ? PyBool_FromLong(result == VK_SUCCESS) : NULL;
}

static PyObject *py_pipeline_cache_data(PyObject *self, PyObject *args)
{
    (void)self;
    unsigned id;
    struct device *d = PyArg_ParseTuple(args, "I", &id) ? numbered(id) : NULL;
    if (!d) return NULL;
    size_t size = 0;
    VkResult result = d->cache ? d->GetPipelineCacheData(d->handle, d->cache, &size, NULL) : 1;
    PyObject *bytes = PyBytes_FromStringAndSize(NULL, result == VK_SUCCESS ? size : 0);
    if (!bytes || !size || result) return bytes;
    if (d->GetPipelineCacheData(d->handle, d->cache, &size, PyBytes_AS_STRING(bytes))) size = 0;
    if (size < (size_t)PyBytes_GET_SIZE(bytes)) _PyBytes_Resize(&bytes, size);
    return bytes;
}

static PyObject *py_inject(PyObject *self, PyObject *args)
{
    (void)self;
    const char *where;
    long nth;
    int result;
    if (!PyArg_ParseTuple(args, "sli", &where, &nth, &result)) return NULL;
    pthread_mutex_lock(&lock);
    struct fault *f = faults;
    while (f < faults + 7 && f->countdown > 0) f++;
    strncpy(f->where, where, sizeof f->where - 1);
    f->countdown = nth;
    f->result = result;
    pthread_mutex_unlock(&lock);
    Py_RETURN_NONE;
}

static PyObject *py_pretend(PyObject *self, PyObject *args)
{
    (void)self;
    int plain;
    unsigned minor;
    if (!PyArg_ParseTuple(args, "Ip", &minor, &plain)) return NULL;
    pretended.minor = minor < 0x3FF ? minor : 0x3FF;
    pretended.plain = plain;
    Py_RETURN_NONE;
}

static PyObject *py_clear_faults(PyObject *self, PyObject *args)
{
    (void)self, (void)args;
    pthread_mutex_lock(&lock);
    memset(faults, 0, sizeof faults);
    pthread_mutex_unlock(&lock);
    Py_RETURN_NONE;
}

static PyObject *py_validation(PyObject *self, PyObject *args)
{
    (void)self;
    int on;
    if (!PyArg_ParseTuple(args, "p", &on)) return NULL;
    validate = on;
    Py_RETURN_NONE;
}

static PyObject *py_validation_messages(PyObject *self, PyObject *args)
{
    (void)self, (void)args;
    char *taken[MESSAGES]; /* Python may call back into Vulkan: not under the lock */
    pthread_mutex_lock(&lock);
    unsigned count = message_count;
    memcpy(taken, messages, sizeof taken);
    message_count = 0;
    pthread_mutex_unlock(&lock);
    PyObject *result = PyList_New(0);
    for (unsigned m = 0; m < count; m++) {
        PyObject *message = result ? text(taken[m]) : NULL;
        if (message) PyList_Append(result, message);
        Py_XDECREF(message);
        free(taken[m]);
    }
    return result;
}

static PyMethodDef methods[] = {
    {"next_dispatch", py_next_dispatch, METH_VARARGS,
     "next_dispatch(x, y, z, independent): grid of the next dispatch on this thread, and whether "
     "it depends on no dispatch since the last barrier"},
    {"next_pipeline", py_next_pipeline, METH_VARARGS,
     "next_pipeline(subgroup_size): size that the next pipeline requires, with full subgroups"},
    {"next_copy", py_next_copy, METH_VARARGS,
     "next_copy(source, target, source_offset, target_offset, size): buffers and bytes of the "
     "next copy on this thread"},
    {"host_buffers", py_host_buffers, METH_VARARGS,
     "host_buffers(on): buffers created on this thread from now on are read by the CPU"},
    {"clear_hints", py_clear_hints, METH_NOARGS, "forget what the next_… functions said"},
    {"created_buffers", py_created_buffers, METH_NOARGS,
     "handles of the buffers that this thread created since the last call"},
    {"last_device", py_last_device, METH_NOARGS,
     "number of the device that this thread created since the last call, or 0"},
    {"device_facts", py_device_facts, METH_VARARGS, "device_facts(id): name and enabled features"},
    {"take_error", py_take_error, METH_VARARGS,
     "take_error(id): None, or the first error as (function, VkResult, bytes), which is cleared"},
    {"counters", py_counters, METH_VARARGS, "counters(id): what the layer did so far"},
    {"memory", py_memory, METH_VARARGS,
     "memory(id): per heap (bytes, budget, used by this process, flags, used by this device)"},
    {"leave_wait", py_leave_wait, METH_VARARGS,
     "leave_wait(id, on): whether waits return at once; the fence of the last that did, or 0"},
    {"finish_wait", py_finish_wait, METH_VARARGS,
     "finish_wait(id, fence): wait for a fence that was left"},
    {"set_spin", py_set_spin, METH_VARARGS,
     "set_spin(id, microseconds): how long a wait polls before it blocks"},
    {"pipeline_cache_load", py_pipeline_cache_load, METH_VARARGS,
     "pipeline_cache_load(id, data): add saved pipelines; whether the driver took them"},
    {"pipeline_cache_data", py_pipeline_cache_data, METH_VARARGS,
     "pipeline_cache_data(id): the pipelines compiled so far, as bytes to save"},
    {"device_list", py_device_list, METH_NOARGS, "one dict per physical device; [] without Vulkan"},
    {"check_device", py_check_device, METH_VARARGS,
     "check_device(index): VkResult of creating the device"},
    {"inject", py_inject, METH_VARARGS,
     "inject(where, nth, result): let the nth call from now at 'submit', 'wait', 'allocate', "
     "'map', 'buffer', 'pipeline', 'device' or, say, 'CreateShaderModule' fail"},
    {"pretend", py_pretend, METH_VARARGS,
     "pretend(minor, plain): for tests: devices offer Vulkan 1.minor at most, and, if plain, no "
     "extensions; 1023 and False end it"},
    {"clear_faults", py_clear_faults, METH_NOARGS, "forget all injected faults"},
    {"validation", py_validation, METH_VARARGS,
     "validation(on): whether new instances ask for synchronization validation"},
    {"validation_messages", py_validation_messages, METH_NOARGS,
     "messages of the validation layer since the last call"},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef module = {
    PyModuleDef_HEAD_INIT, "_layer", "Vulkan layer between Kompute and the driver", -1, methods,
    NULL, NULL, NULL, NULL,
};

PyMODINIT_FUNC PyInit__layer(void)
{
    return PyModule_Create(&module);
}
