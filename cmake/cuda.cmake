# CUDA, cuDNN, cuBLAS and CUPTI are optional: without them all but tracing and CUDA replay is built.
# Defines superneurons_cuda_sources(), which adds .cu files and definitions where everything was found.
set(SUPERNEURONS_HAVE_CUDA OFF)
if(SUPERNEURONS_CUDA)
  include(CheckLanguage)
  find_package(CUDAToolkit QUIET)
  check_language(CUDA)
  if(CUDAToolkit_FOUND AND CMAKE_CUDA_COMPILER)
    find_path(CUDNN_INCLUDE_DIR cudnn.h HINTS ${CUDAToolkit_INCLUDE_DIRS} $ENV{CUDNN_ROOT} PATH_SUFFIXES include)
    find_library(CUDNN_LIBRARY cudnn HINTS ${CUDAToolkit_LIBRARY_DIR} $ENV{CUDNN_ROOT} PATH_SUFFIXES lib lib64)
    find_path(CUPTI_INCLUDE_DIR cupti.h HINTS ${CUDAToolkit_INCLUDE_DIRS}
              ${CUDAToolkit_LIBRARY_ROOT}/extras/CUPTI PATH_SUFFIXES include)
    find_library(CUPTI_LIBRARY cupti HINTS ${CUDAToolkit_LIBRARY_DIR}
                 ${CUDAToolkit_LIBRARY_ROOT}/extras/CUPTI PATH_SUFFIXES lib64)
    if(CUDNN_INCLUDE_DIR AND CUDNN_LIBRARY AND CUPTI_INCLUDE_DIR AND CUPTI_LIBRARY)
      set(SUPERNEURONS_HAVE_CUDA ON)
    endif()
  endif()
endif()
if(SUPERNEURONS_HAVE_CUDA)
  if(NOT CMAKE_CUDA_ARCHITECTURES)
    set(CMAKE_CUDA_ARCHITECTURES 75 80 90)
  endif()
  enable_language(CUDA)
  # CMake 3.25 does not know nvcc's C++20 flag.
  if(NOT CMAKE_CUDA20_STANDARD_COMPILE_OPTION)
    set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION -std=c++20)
    set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION -std=c++20)
  endif()
  set(CMAKE_CUDA_STANDARD 20)
  message(STATUS "CUDA backend: on (${CUDAToolkit_VERSION}, ${CUDNN_LIBRARY}, ${CUPTI_LIBRARY})")
else()
  message(STATUS "CUDA backend: off (needs nvcc, cuDNN, cuBLAS and CUPTI)")
endif()

function(superneurons_cuda_sources)
  if(NOT SUPERNEURONS_HAVE_CUDA)
    return()
  endif()
  foreach(folder replay tracer)
    file(GLOB sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/${folder}/cuda/*.cu
         ${PROJECT_SOURCE_DIR}/${folder}/cuda/*.cpp)
    target_sources(superneurons_${folder} PRIVATE ${sources})
    target_compile_definitions(superneurons_${folder} PUBLIC SUPERNEURONS_CUDA)
    target_include_directories(superneurons_${folder} PUBLIC ${CUDNN_INCLUDE_DIR} ${CUPTI_INCLUDE_DIR})
    target_link_libraries(superneurons_${folder} PUBLIC CUDA::cudart CUDA::cublas ${CUDNN_LIBRARY} ${CUPTI_LIBRARY})
  endforeach()
endfunction()

# The injectable tracer: a shared library with a C interface and no other visible symbol.
function(superneurons_tracer_library)
  if(NOT SUPERNEURONS_HAVE_CUDA)
    return()
  endif()
  add_library(superneurons_cupti SHARED tracer/library/superneurons_cupti.cpp tracer/activity_log.cpp
              tracer/activity_writer.cpp tracer/cuda/cupti_decode.cpp
              tracer/cuda/cupti_collector.cpp)
  set_target_properties(superneurons_cupti PROPERTIES CXX_VISIBILITY_PRESET hidden
                        VISIBILITY_INLINES_HIDDEN ON
                        LINK_DEPENDS ${PROJECT_SOURCE_DIR}/tracer/library/exports.map)
  # Visibility alone leaves the standard library's templates (weak symbols) visible.
  target_link_options(superneurons_cupti PRIVATE
                      -Wl,--version-script=${PROJECT_SOURCE_DIR}/tracer/library/exports.map)
  target_include_directories(superneurons_cupti PRIVATE ${PROJECT_SOURCE_DIR} ${CUPTI_INCLUDE_DIR}
                             ${CUDAToolkit_INCLUDE_DIRS})
  target_link_libraries(superneurons_cupti PRIVATE fmt::fmt-header-only Threads::Threads ${CUPTI_LIBRARY})
  # A build of the program alone can be installed too.
  install(TARGETS superneurons_cupti LIBRARY OPTIONAL)
endfunction()
