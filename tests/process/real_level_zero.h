// Level Zero's loader and drivers, reached by dlopen, as the programs on it need them.
#pragma once

#include "real_check.h"

#include <level_zero/ze_api.h>
#include <level_zero/loader/ze_loader.h>

#include <cstdint>
#include <vector>

namespace real {

struct Loader {
  void *library = open_library("libze_loader.so.1");
  decltype(&zeInit) init = find<decltype(zeInit)>(library, "zeInit");
  decltype(&zeDriverGet) driver_get = find<decltype(zeDriverGet)>(library, "zeDriverGet");
  decltype(&zeDeviceGet) device_get = find<decltype(zeDeviceGet)>(library, "zeDeviceGet");
  decltype(&zeDriverGetExtensionFunctionAddress) function_address =
      find<decltype(zeDriverGetExtensionFunctionAddress)>(library, "zeDriverGetExtensionFunctionAddress");
  decltype(&zelLoaderTranslateHandle) translate =
      find<decltype(zelLoaderTranslateHandle)>(library, "zelLoaderTranslateHandle");

  std::vector<ze_driver_handle_t> drivers() const {
    uint32_t count = 0;
    CHECK_EQUAL(driver_get(&count, nullptr), ZE_RESULT_SUCCESS);
    std::vector<ze_driver_handle_t> handles(count);
    CHECK_EQUAL(driver_get(&count, handles.data()), ZE_RESULT_SUCCESS);
    return handles;
  }
};

// The import functions of one driver, with the handle that they want: the driver's own, not the loader's wrapper around
// it.
struct Imports {
  Imports(const Loader &loader, ze_driver_handle_t wrapped) {
    void *own = nullptr;
    CHECK_EQUAL(loader.translate(ZEL_HANDLE_DRIVER, wrapped, &own), ZE_RESULT_SUCCESS);
    driver = static_cast<ze_driver_handle_t>(own);
    look_up(loader, wrapped, "zexDriverImportExternalPointer", import);
    look_up(loader, wrapped, "zexDriverReleaseImportedPointer", release);
    look_up(loader, wrapped, "zexDriverGetHostPointerBaseAddress", base_address);
  }

  ze_result_t add(void *pointer, std::size_t bytes) const { return import(driver, pointer, bytes); }
  ze_result_t remove(void *pointer) const { return release(driver, pointer); }
  bool covers(void *pointer) const { return base_address(driver, pointer, nullptr) == ZE_RESULT_SUCCESS; }

  ze_driver_handle_t driver;
  ze_result_t (*import)(ze_driver_handle_t, void *, std::size_t) = nullptr;
  ze_result_t (*release)(ze_driver_handle_t, void *) = nullptr;
  ze_result_t (*base_address)(ze_driver_handle_t, void *, void **) = nullptr;

 private:
  template <class F>
  static void look_up(const Loader &loader, ze_driver_handle_t wrapped, const char *name, F *&function) {
    void *address = nullptr;
    CHECK_EQUAL(loader.function_address(wrapped, name, &address), ZE_RESULT_SUCCESS);
    CHECK(address != nullptr);
    function = reinterpret_cast<F *>(address);
  }
};

} // namespace real
